// SPDX-License-Identifier: Apache-2.0
// Several functions in one node, which passes over the graph make.
// The list of the files here that register ops: one function for each, of its name.
#pragma once
#include "ops/nn/gpu_epilogue.h"
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// Registers all of them, by calling each of those below.
void register_fused_ops(OpRegistry& ops, KernelRegistry& kernels);

void register_fused_elementwise_ops(OpRegistry&, KernelRegistry&);
void register_fused_product_ops(OpRegistry&, KernelRegistry&);

/// Kernels of GPUs. `launch` is that of the variant.
void register_fused_product_gpu(KernelRegistry& kernels, GpuEpilogueLaunch launch);

}  // namespace troupe
