// SPDX-License-Identifier: Apache-2.0
// Splits one kernel's work over the helper team of the thread that runs the device.
#pragma once
#include <algorithm>
#include <cstdint>

namespace troupe {

/// Calls f(begin, end) on disjoint ranges that cover [0, n), in at most `threads` pieces of at least `grain`; on the
/// calling thread alone when that makes one piece. Returns when all are done. f must not throw.
template <class F> void parallel_for(int threads, int64_t n, int64_t grain, F&& f) {
  const int64_t pieces = std::clamp<int64_t>(n / std::max<int64_t>(grain, 1), 1, std::max(threads, 1));
  if (pieces == 1) {
    if (n > 0) f(int64_t{0}, n);
    return;
  }
#pragma omp parallel for num_threads(int(pieces)) schedule(static, 1)
  for (int64_t i = 0; i < pieces; ++i) f(n * i / pieces, n * (i + 1) / pieces);
}

}  // namespace troupe
