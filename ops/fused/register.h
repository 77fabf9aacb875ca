// SPDX-License-Identifier: Apache-2.0
// Several functions in one node, which passes over the graph make.
// The list of the files here that register ops: one function for each, of its name.
#pragma once
#include "ops/fused/gpu_elementwise.h"
#include "ops/nn/gpu_epilogue.h"
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// Registers all of them, by calling each of those below.
void register_fused_ops(OpRegistry& ops, KernelRegistry& kernels);

void register_fused_elementwise_ops(OpRegistry&, KernelRegistry&);
void register_fused_product_ops(OpRegistry&, KernelRegistry&);
void register_product_gradient_ops(OpRegistry&, KernelRegistry&);
void register_blocked_image_ops(OpRegistry&, KernelRegistry&);
void register_pointwise_depthwise_ops(OpRegistry&, KernelRegistry&);
void register_fused_transformer_ops(OpRegistry&, KernelRegistry&);

/// Kernels of GPUs. Launches are those of the variant.
void register_fused_elementwise_gpu(KernelRegistry& kernels, GpuFusedLaunch launch);
void register_fused_product_gpu(KernelRegistry& kernels, const GpuEpilogueLaunches& launches);
void register_product_gradient_gpu(KernelRegistry& kernels, const GpuEpilogueLaunches& launches);

// What attributes of gradients say, for CPUs and GPUs.
/// Whether _FusedMatMulReluGrad or _FusedMatMulGeluGrad has the sums too.
Result<bool> sums_of_activation_gradient(const KernelInit& init);
/// Their features, in the shape of the product. Error: not as many elements.
Result<Tensor> features_as_matrix(const Tensor& features, const Shape& product);
/// The operand that _FusedMatMulBiasAddGrad sums: 0 or 1.
Result<int> summed_operand(const KernelInit& init);

}  // namespace troupe
