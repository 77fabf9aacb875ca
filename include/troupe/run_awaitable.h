// SPDX-License-Identifier: Apache-2.0
// RunAwaitable: a run that a C++20 coroutine waits for: `RunResult result = co_await session.run_async(train);`.
// Implemented in actors/run_awaitable.cpp; made by Session::run_async without a callback.
#pragma once
#include <coroutine>
#include <memory>
#include <vector>

#include "troupe/export.h"
#include "troupe/tensor.h"

namespace TROUPE_API troupe {

/// What a run gives: the fetched tensors, or the first error of its step.
using RunResult = Result<std::vector<Tensor>>;

/// A run under way. It began when this was made, so that several may be begun before the first is awaited. Awaited
/// once, by one coroutine of any kind of promise; its result is what co_await gives.
///
/// - Where the coroutine goes on: where it is, if the run has ended by then; else on a thread of the engine, as a run
///   callback would: until it suspends again it must not block, and Session::run is an error there. To go on elsewhere
///   it awaits something of the embedder's that resumes it there (docs/embedding.md).
/// - It is never resumed inside a call to the session: a million awaits in a row take no more stack than one.
/// - An exception that leaves the coroutine goes to its promise. If the promise throws it on, the engine logs it.
/// - Destroying the coroutine while it waits, or this without awaiting it, gives the result up; the run goes on
///   (RunOptions::cancel ends it). As ever with coroutines, who destroys one must know that nobody resumes it
///   meanwhile: here, that the run has not ended.
/// - GCC 12 does not compile braces inside a co_await expression ("array used as initializer"): there, begin the run
///   first, `auto run = session.run_async({{x, value}}, loss);`, and await that.
/// - A session or engine that ends cancels its runs: the coroutine goes on with kCancelled before the destructor
///   returns.
class [[nodiscard]] RunAwaitable {
 public:
  RunAwaitable(RunAwaitable&&) noexcept = default;
  ~RunAwaitable();

  /// Whether the run has ended.
  bool await_ready() const;
  bool await_suspend(std::coroutine_handle<> waiting);
  RunResult await_resume();

 private:
  friend class Session;
  class State;
  explicit RunAwaitable(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace troupe
