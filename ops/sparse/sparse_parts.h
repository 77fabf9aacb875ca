// SPDX-License-Identifier: Apache-2.0
// The parts of the family of sparse tensors, each a file of its own; register_sparse_order_ops calls them.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// What SerializeSparse makes of a sparse tensor: indices, values, sizes.
constexpr int64_t kSerializedParts = 3;

void register_sparse_math_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_sparse_count_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_sparse_cross_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_sparse_map_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_sparse_slice_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_sparse_serialize_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_sparse_reduction_ops(OpRegistry& ops, KernelRegistry& kernels);

}  // namespace troupe
