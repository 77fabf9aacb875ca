// SPDX-License-Identifier: Apache-2.0
// LongWait: marks the calling thread as one that only waits for what other threads do. Whoever the thread belongs to
// may then have another one work in its place, so that threads which are counted cannot all wait for one more.
#pragma once

namespace troupe {

/// Told when threads of its own begin and end such waits. On that thread; a wait within a wait is not told.
class WaitObserver {
 public:
  virtual ~WaitObserver() = default;
  virtual void wait_begins() = 0;
  virtual void wait_ended() = 0;
};

class LongWait {
 public:
  /// As long as this lives. On a thread without an observer, or that waits already, it does nothing.
  LongWait();
  ~LongWait();
  LongWait(const LongWait&) = delete;

  /// From now on the calling thread belongs to `observer`, which outlives that; nullptr: to nobody.
  static void observe_thread(WaitObserver* observer);

 private:
  WaitObserver* const observer_;
};

}  // namespace troupe
