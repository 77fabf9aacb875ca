// SPDX-License-Identifier: Apache-2.0
#include "devices/parallel.h"

#include <omp.h>

#include <algorithm>

namespace troupe {

int set_team(int threads) {
  const int before = omp_get_max_threads(), after = std::clamp(threads, 1, omp_get_thread_limit());
  if (after != before) omp_set_num_threads(after);
  return before;
}

void parallel_for(int threads, int64_t n, int64_t grain, RangeFunction f) {
  const int64_t pieces = std::clamp<int64_t>(n / std::max<int64_t>(grain, 1), 1, std::max(threads, 1));
  if (pieces == 1) {
    if (n > 0) f(0, n);
    return;
  }
#pragma omp parallel for num_threads(int(pieces)) schedule(static, 1)
  for (int64_t i = 0; i < pieces; ++i) f(n * i / pieces, n * (i + 1) / pieces);
}

}  // namespace troupe
