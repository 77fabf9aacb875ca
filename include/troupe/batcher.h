// SPDX-License-Identifier: Apache-2.0
// Batcher: runs requests that come one by one as batches, for services. Implemented in train/batcher.cpp.
//
//   auto batcher = Batcher::create(session, {images}, {logits}, {.most_rows = 64}).value();
//   batcher->run_async({image}, [](RunResult answer) { ... });   // image [1,28,28,1], answer [1,10]
#pragma once
#include <cstdint>
#include <future>
#include <memory>
#include <vector>

#include "troupe/export.h"
#include "troupe/session.h"

namespace TROUPE_API troupe {

struct BatcherOptions {
  /// Rows of a batch at most.
  int64_t most_rows = 32;
  /// Batches under way at once. Requests gather while there are as many, so a busy service has large batches, and an
  /// idle one answers at once: nothing waits for a batch to fill.
  int most_batches = 1;
  /// Rows that may wait; a request beyond is kResourceExhausted at once.
  int64_t most_waiting = 1024;
  /// Of each batch, as RunOptions::deadline.
  Deadline deadline = {};
};

/// Requests of one signature. Each has a row or more of every feed: a tensor [n, ...] a feed, of the same n; its answer
/// has these rows of every fetch. Rows of a batch must not depend on one another.
///
/// A batch has requests of the same inner shapes, in the order in which they came. When its step fails and it had
/// several, each is run again alone, so what is wrong with one request is its own error and nobody else's; a graph that
/// changes variables may have done so before.
///
/// Thread-safe.
class Batcher {
 public:
  /// The session must outlive it, as its callbacks too (Session::close waits for them). Errors: those of
  /// Session::prepare; kInvalidArgument for options below 1, and without a feed or a fetch.
  static Result<std::unique_ptr<Batcher>> create(Session& session, const std::vector<Output>& feeds,
                                                 const std::vector<Output>& fetches, BatcherOptions options = {});
  /// close().
  ~Batcher();
  Batcher(const Batcher&) = delete;

  /// Requests that wait, and later ones, are answered with kCancelled, within this call or theirs; batches under way
  /// end. Again: nothing. Any thread.
  void close();

  /// Has `values`, one for each feed, be part of a batch. `done` is called once, on a thread of the engine, or within
  /// the call where the request does not come to run. It must not block. Errors: kInvalidArgument for another number of
  /// values than feeds, a scalar, no rows or more than most_rows, or values of different numbers of rows, resources
  /// and variants, a fetch that has not the rows of its batch; kResourceExhausted where too many wait; kCancelled once
  /// it is closed; those of the step.
  void run_async(std::vector<Tensor> values, RunCallback done);
  std::future<RunResult> run_future(std::vector<Tensor> values);
  /// Blocks; on a thread of the engine it is an error.
  RunResult run(std::vector<Tensor> values);

  /// Steps and rows so far, those under way included: rows / steps is how full batches were.
  int64_t steps() const;
  int64_t rows() const;

 private:
  class State;
  explicit Batcher(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;  // batches under way have it too
};

}  // namespace troupe
