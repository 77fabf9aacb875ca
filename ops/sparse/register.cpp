// SPDX-License-Identifier: Apache-2.0
// Calls every function of the list.
#include "ops/sparse/register.h"

namespace troupe {

void register_sparse_ops(OpRegistry& ops, KernelRegistry& kernels) {
  register_ragged_ops(ops, kernels);
  register_ragged_row_ops(ops, kernels);
  register_ragged_variant_ops(ops, kernels);
  register_sparse_count_ops(ops, kernels);
  register_sparse_cross_ops(ops, kernels);
  register_ragged_cross_ops(ops, kernels);
  register_sparse_map_ops(ops, kernels);
  register_sparse_math_ops(ops, kernels);
  register_sparse_matmul_ops(ops, kernels);
  register_sparse_order_ops(ops, kernels);
  register_sparse_reduction_ops(ops, kernels);
  register_sparse_segment_ops(ops, kernels);
  register_sparse_serialize_ops(ops, kernels);
  register_set_ops(ops, kernels);
  register_sparse_slice_ops(ops, kernels);
  register_sparse_to_dense_ops(ops, kernels);
}

}  // namespace troupe
