// SPDX-License-Identifier: Apache-2.0
// Completions: tells the host when a card has done work. Work is watched by an untimed event behind it; a thread for
// each watched stream polls the oldest event, spins for a moment, then blocks in Event::wait(), and calls a function.
//
// A thread for each stream, not for each card: a collective in one stream may wait for what another process does once
// it got what another stream of this card sent. Who blocked in the first would never tell of the second.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "gpu/runtime.h"

namespace troupe::gpu {

struct CompletionsOptions {
  int card = 0;
  std::chrono::microseconds spin{30};  // before blocking
  /// No thread: poll() calls the functions. For tests that do a fake's work by hand.
  bool passive = false;
};

/// Any thread may call anything, but poll() one at a time.
class Completions {
 public:
  Completions(std::shared_ptr<Runtime> runtime, CompletionsOptions options);
  /// Calls what is left with kCancelled, once its work is done, or with the error of a lost card: so it waits for the
  /// watched streams, but not for work that nothing can do any more. Functions may destroy their Completions.
  ~Completions();
  Completions(const Completions&) = delete;

  /// Starts the thread of `stream`, so that watch() asks for none; else the first watch() does, and
  /// throws std::system_error where the system refuses one. Error: kResourceExhausted.
  Status look_after(Stream& stream);

  /// Has `then` called once all is done that `stream`, of the card, holds now. Each function is called once, those of a
  /// stream in the order of the calls, those of several streams perhaps at once. They may watch more. Not watch() calls
  /// them, unless one watches another stream while this is destroyed. The status: success; what kept the work from
  /// being watched; the error of a lost card, after which no work touches memory. The stream may go meanwhile. Returns
  /// how many calls there were, this one included.
  uint64_t watch(Stream& stream, std::function<void(Status)> then);

  /// Calls the functions of what is done by now. Returns how many.
  int poll();

 private:
  struct Watched;
  struct Queue;
  struct Shared;
  std::shared_ptr<Queue> queue_of(Stream& stream);
  const std::shared_ptr<Shared> shared_;  // the threads keep it too
};

}  // namespace troupe::gpu
