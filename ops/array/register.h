// SPDX-License-Identifier: Apache-2.0
// Shapes and places of elements: constants, views, parts and joins, reading by index, orders.
// The list of the files here that register ops: one function for each, of its name.
#pragma once
#include "ops/parts/gpu_variants.h"
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// Registers all of them, by calling each of those below.
void register_array_ops(OpRegistry& ops, KernelRegistry& kernels);

void register_band_ops(OpRegistry&, KernelRegistry&);
void register_block_ops(OpRegistry&, KernelRegistry&);
void register_concat_ops(OpRegistry&, KernelRegistry&);
void register_const_ops(OpRegistry&, KernelRegistry&);
void register_data_format_ops(OpRegistry&, KernelRegistry&);
void register_diagonal_ops(OpRegistry&, KernelRegistry&);
void register_gather_ops(OpRegistry&, KernelRegistry&);
void register_gather_nd_ops(OpRegistry&, KernelRegistry&);
void register_inplace_ops(OpRegistry&, KernelRegistry&);
void register_order_ops(OpRegistry&, KernelRegistry&);
void register_pad_ops(OpRegistry&, KernelRegistry&);
void register_partition_ops(OpRegistry&, KernelRegistry&);
void register_reshape_ops(OpRegistry&, KernelRegistry&);
void register_reverse_ops(OpRegistry&, KernelRegistry&);
void register_sequence_ops(OpRegistry&, KernelRegistry&);
void register_slice_ops(OpRegistry&, KernelRegistry&);
void register_top_k_ops(OpRegistry&, KernelRegistry&);
void register_unique_ops(OpRegistry&, KernelRegistry&);

/// Kernels of GPUs that launch nothing: those of CPUs, which touch no element, or only what is at the host.
void register_identities_gpu(KernelRegistry&);
void register_sequence_gpu(KernelRegistry&);
void register_views_gpu(KernelRegistry&);

// Kernels that only move elements, for CPUs or GPUs.
struct Moves;  // ops/parts/moves.h
void register_concat_moves(KernelRegistry&, const Moves&);
void register_pad_moves(KernelRegistry&, const Moves&);
void register_reshape_moves(KernelRegistry&, const Moves&);
void register_reverse_moves(KernelRegistry&, const Moves&);
void register_slice_moves(KernelRegistry&, const Moves&);

// Kernels of GPUs that launch what files of kernels give.
struct GpuGather;   // ops/array/gather.h
struct GpuScatter;  // ops/parts/scatter.h
void register_partition_gpu(KernelRegistry&, Status (*gather)(const GpuGather&), Status (*scatter)(const GpuScatter&));
void register_scatter_nd_gpu(KernelRegistry&, Status (*launch)(const GpuScatter&));

// Of the files of kernels of GPUs.
TROUPE_GPU_VARIANTS(register_const_gpu)
TROUPE_GPU_VARIANTS(register_gather_gpu)
TROUPE_GPU_VARIANTS(register_reverse_sequence_gpu)
TROUPE_GPU_VARIANTS(register_top_k_gpu)

}  // namespace troupe
