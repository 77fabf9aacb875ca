// SPDX-License-Identifier: Apache-2.0
// BlockingPool: threads for what may wait, as long as it likes: files, users' functions, blocking kernels. Nobody else
// waits for it: not a device, not a timer, and at its end not for longer than it is told to.
#pragma once
#include <chrono>
#include <functional>
#include <memory>

#include "troupe/error.h"

namespace troupe {

/// Thread-safe. A job runs on a thread of its own: one that has nothing to do, or a new one. It must own what it
/// touches, since it may go on when the pool, and whoever gave it the job, are gone.
class BlockingPool {
 public:
  using Job = std::function<void()>;
  struct Options {
    /// Jobs that run at once; those beyond it begin when others end, first come first served. A job that is in a
    /// LongWait does not count: what it waits for may be a job that needs a thread too.
    size_t most_threads = 256;
    /// A thread with nothing to do ends after that.
    std::chrono::milliseconds keep_idle{5'000};
    /// Asked before a thread is started; false: it fails as if the system had refused. None: nothing is asked.
    std::function<bool()> may_start = {};
  };

  BlockingPool();
  explicit BlockingPool(Options options);
  /// shutdown(), if nobody has called it.
  ~BlockingPool();
  BlockingPool(const BlockingPool&) = delete;

  /// Has `job` called, once, by another thread; what it throws is caught. A job that is not called in the end is
  /// destroyed, by shutdown(). Errors: kCancelled after shutdown(); kResourceExhausted where no thread can be
  /// started and there is none but those in a LongWait. Where there is one, the job waits for it.
  Status run(Job job);
  /// Takes no more jobs, destroys those that have not begun, and waits for the others, but at most `patience`. Threads
  /// that have not come back by then are left behind: they end with their jobs. True: none was left.
  bool shutdown(std::chrono::nanoseconds patience = std::chrono::seconds(1));
  /// At this moment, with those that have nothing to do.
  size_t threads() const;
  /// Of these, those that have nothing to do.
  size_t idle() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace troupe
