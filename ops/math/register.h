// SPDX-License-Identifier: Apache-2.0
// Functions of numbers, element by element, and what counts, reduces and adds up.
// The list of the files here that register ops: one function for each, of its name.
#pragma once
#include "ops/parts/gpu_variants.h"
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// Registers all of them, by calling each of those below.
void register_math_ops(OpRegistry& ops, KernelRegistry& kernels);

void register_bessel_ops(OpRegistry&, KernelRegistry&);
void register_math_binary_ops(OpRegistry&, KernelRegistry&);
void register_bitwise_ops(OpRegistry&, KernelRegistry&);
void register_cast_ops(OpRegistry&, KernelRegistry&);
void register_complex_ops(OpRegistry&, KernelRegistry&);
void register_math_guarded_ops(OpRegistry&, KernelRegistry&);
void register_histogram_ops(OpRegistry&, KernelRegistry&);
void register_isotonic_ops(OpRegistry&, KernelRegistry&);
void register_reduction_ops(OpRegistry&, KernelRegistry&);
void register_same_shape_ops(OpRegistry&, KernelRegistry&);
void register_scan_ops(OpRegistry&, KernelRegistry&);
void register_segment_ops(OpRegistry&, KernelRegistry&);
void register_select_ops(OpRegistry&, KernelRegistry&);
void register_special_ops(OpRegistry&, KernelRegistry&);
void register_math_unary_ops(OpRegistry&, KernelRegistry&);

/// A kernel of GPUs that launches nothing: that of CPUs, for shapes.
void register_broadcast_args_gpu(KernelRegistry&);

// Kernels that only move elements, for CPUs or GPUs.
struct Moves;  // ops/parts/moves.h
void register_broadcast_moves(KernelRegistry&, const Moves&);

// Kernels of GPUs that launch what files of kernels give.
struct GpuScatter;  // ops/parts/scatter.h
void register_segment_gpu(KernelRegistry&, Status (*launch)(const GpuScatter&));

// Of the files of kernels of GPUs.
TROUPE_GPU_VARIANTS(register_cast_gpu)
TROUPE_GPU_VARIANTS(register_math_binary_gpu)
TROUPE_GPU_VARIANTS(register_math_guarded_gpu)
TROUPE_GPU_VARIANTS(register_math_unary_gpu)
TROUPE_GPU_VARIANTS(register_reduction_gpu)
TROUPE_GPU_VARIANTS(register_scan_gpu)
TROUPE_GPU_VARIANTS(register_select_gpu)

}  // namespace troupe
