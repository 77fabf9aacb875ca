// SPDX-License-Identifier: Apache-2.0
// Calls every function of the list.
#include "ops/math/register.h"

namespace troupe {

void register_math_ops(OpRegistry& ops, KernelRegistry& kernels) {
  register_bessel_ops(ops, kernels);
  register_math_binary_ops(ops, kernels);
  register_bitwise_ops(ops, kernels);
  register_cast_ops(ops, kernels);
  register_complex_ops(ops, kernels);
  register_math_guarded_ops(ops, kernels);
  register_histogram_ops(ops, kernels);
  register_isotonic_ops(ops, kernels);
  register_reduction_ops(ops, kernels);
  register_same_shape_ops(ops, kernels);
  register_scan_ops(ops, kernels);
  register_segment_ops(ops, kernels);
  register_select_ops(ops, kernels);
  register_special_ops(ops, kernels);
  register_math_unary_ops(ops, kernels);
}

}  // namespace troupe
