// SPDX-License-Identifier: Apache-2.0
// TeamLeader: which thread of a program's own may run the kernels of a device of several threads, when it is lent
// (actors/lender.h). OpenMP makes helpers anew for each thread that wants some, and keeps them while that lives.
#pragma once
#include <atomic>
#include <cstdint>

namespace troupe {

/// Of one device. Thread-safe.
class TeamLeader {
 public:
  /// Whether the calling thread may: it is the last that did, or that has not for a second. Never one that OpenMP runs
  /// beside others, which would get no helpers, nor one that came through fork(): OpenMP would have it wait for helpers
  /// that stayed with the parent.
  bool take();

 private:
  static constexpr int64_t kKeptNs = 1'000'000'000;
  std::atomic<uint64_t> thread_ = 0;  // a number of its own; 0: nobody yet
  std::atomic<int64_t> taken_ns_ = 0;
};

}  // namespace troupe
