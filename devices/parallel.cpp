// SPDX-License-Identifier: Apache-2.0
#include "devices/parallel.h"

#include <algorithm>

namespace troupe {

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
