// SPDX-License-Identifier: Apache-2.0
// Tensors given by places and values, and sets.
// The list of the files here that register ops: one function for each, of its name.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// Registers all of them, by calling each of those below.
void register_sparse_ops(OpRegistry& ops, KernelRegistry& kernels);

void register_ragged_ops(OpRegistry&, KernelRegistry&);
void register_ragged_row_ops(OpRegistry&, KernelRegistry&);
void register_ragged_variant_ops(OpRegistry&, KernelRegistry&);
void register_sparse_count_ops(OpRegistry&, KernelRegistry&);
void register_sparse_cross_ops(OpRegistry&, KernelRegistry&);
void register_ragged_cross_ops(OpRegistry&, KernelRegistry&);
void register_sparse_map_ops(OpRegistry&, KernelRegistry&);
void register_sparse_math_ops(OpRegistry&, KernelRegistry&);
void register_sparse_matmul_ops(OpRegistry&, KernelRegistry&);
void register_sparse_order_ops(OpRegistry&, KernelRegistry&);
void register_sparse_reduction_ops(OpRegistry&, KernelRegistry&);
void register_sparse_segment_ops(OpRegistry&, KernelRegistry&);
void register_sparse_serialize_ops(OpRegistry&, KernelRegistry&);
void register_set_ops(OpRegistry&, KernelRegistry&);
void register_sparse_slice_ops(OpRegistry&, KernelRegistry&);
void register_sparse_to_dense_ops(OpRegistry&, KernelRegistry&);

}  // namespace troupe
