// SPDX-License-Identifier: Apache-2.0
// Versions of subtract_rows() for several instruction sets.
#include "ops/linear/rows.h"

#include "ops/parts/instruction_sets.h"

namespace troupe {

TROUPE_SIMD_CLONES void subtract_rows(float* x, const float* factors, const float* rows, int64_t apart, int64_t count,
                                      int64_t n) {
  subtract_rows_body(x, factors, rows, apart, count, n);
}
TROUPE_SIMD_CLONES void subtract_rows(double* x, const double* factors, const double* rows, int64_t apart,
                                      int64_t count, int64_t n) {
  subtract_rows_body(x, factors, rows, apart, count, n);
}

}  // namespace troupe
