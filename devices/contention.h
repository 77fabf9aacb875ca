// SPDX-License-Identifier: Apache-2.0
// Contention: whether a machine has more to do than cores, as the thread sees it that runs kernels with a team.
//
// Threads of a team wait for one another awake, for some milliseconds, which is best while each has a core. Where they
// have to share cores, with another program say, one that waits keeps the core from the one that it waits for: two
// threads on two cores, with a compiler beside them, take up to 100 times as long. Such a thread has a core for less
// than half of the time that its turns take: that is how it is known. One that has two thirds does better to go on so.
#pragma once
#include <algorithm>
#include <cstdint>

namespace troupe {

/// Passive: time comes from outside, in nanoseconds of one clock.
class Contention {
 public:
  static constexpr int64_t kWindowNs = 10'000'000;      // of turns, before it says anything
  static constexpr int64_t kLeastHoldNs = 500'000'000;  // brief waits last so long, then it looks again
  static constexpr int64_t kMostHoldNs = 8'000'000'000;

  /// A turn of kernels with long waits has taken `wall_ns`, and its thread had a core for `cpu_ns` of them.
  void took(int64_t wall_ns, int64_t cpu_ns, int64_t now_ns) {
    wall_ns_ += wall_ns;
    cpu_ns_ += std::min(cpu_ns, wall_ns);
    if (wall_ns_ < kWindowNs) return;
    if (cpu_ns_ * 2 < wall_ns_) {
      // The machine was left alone for less time than it had been busy: look less often.
      const bool again = until_ns_ > 0 && now_ns - until_ns_ < hold_ns_;
      hold_ns_ = again ? std::min(2 * hold_ns_, kMostHoldNs) : kLeastHoldNs;
      until_ns_ = now_ns + hold_ns_;
    }
    wall_ns_ = cpu_ns_ = 0;
  }
  /// Whether threads are to wait briefly and then sleep.
  bool waits_briefly(int64_t now_ns) const { return now_ns < until_ns_; }

 private:
  int64_t wall_ns_ = 0, cpu_ns_ = 0;  // of the window
  int64_t hold_ns_ = kLeastHoldNs;
  int64_t until_ns_ = 0;  // brief waits last, or lasted, until then
};

}  // namespace troupe
