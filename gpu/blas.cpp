// SPDX-License-Identifier: Apache-2.0
// What all matrix libraries of GPUs need.
#include "gpu/blas.h"

namespace troupe::gpu {

ColumnMajorProduct column_major(const Product& p) {
  // What is row-major [r,c] is column-major [c,r], and (a b)^T = b^T a^T.
  return {
      .m = p.n,
      .n = p.m,
      .k = p.k,
      .transpose_left = p.tb,
      .transpose_right = p.ta,
      .left = p.b,
      .right = p.a,
      .left_rows = p.tb ? p.k : p.n,
      .left_columns = p.tb ? p.n : p.k,
      .right_rows = p.ta ? p.m : p.k,
      .right_columns = p.ta ? p.k : p.m,
      .left_step = p.b_step,
      .right_step = p.a_step,
      .result_step = p.m * p.n,
  };
}

}  // namespace troupe::gpu
