// SPDX-License-Identifier: Apache-2.0
// Calls every function of the list.
#include "ops/array/register.h"

namespace troupe {

void register_array_ops(OpRegistry& ops, KernelRegistry& kernels) {
  register_band_ops(ops, kernels);
  register_block_ops(ops, kernels);
  register_concat_ops(ops, kernels);
  register_const_ops(ops, kernels);
  register_data_format_ops(ops, kernels);
  register_diagonal_ops(ops, kernels);
  register_gather_ops(ops, kernels);
  register_gather_nd_ops(ops, kernels);
  register_inplace_ops(ops, kernels);
  register_order_ops(ops, kernels);
  register_pad_ops(ops, kernels);
  register_partition_ops(ops, kernels);
  register_reshape_ops(ops, kernels);
  register_reverse_ops(ops, kernels);
  register_sequence_ops(ops, kernels);
  register_slice_ops(ops, kernels);
  register_top_k_ops(ops, kernels);
  register_unique_ops(ops, kernels);
}

}  // namespace troupe
