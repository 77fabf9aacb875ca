// SPDX-License-Identifier: Apache-2.0
// Epilogues of fused nodes on GPUs: bias and activation in one pass over the result of a product, in place, and their
// gradients. The kernels are in ops/nn/epilogue.cu, the sums of a bias's gradient in ops/nn/bias.cu.
#pragma once
#include "ops/nn/epilogue.h"

namespace troupe {

/// y = activation(y + bias), as `form` says; `bias` is null where it has none, or it was added before. The caller has
/// told the stream what is used. Errors: a bias that does not fit, those of a launch.
struct GpuEpilogue {
  const EpilogueForm& form;
  const Tensor* bias = nullptr;
  bool channels_first = false;
};
using GpuEpilogueLaunch = Status (*)(const gpu::Compute& gpu, const GpuEpilogue& epilogue, Tensor& y);

/// dy = ReluGrad(dy, features) or _GeluApproximateGrad(dy, features), in place; the two are of one shape and type. The
/// caller has told the stream what is used.
using GpuActivationGradientLaunch = Status (*)(const gpu::Compute& gpu, const Tensor& features, Tensor& dy);
/// Of features [m,n] the mask that Product::mask in gpu/blas.h describes: 1 where they are above 0.
using GpuReluMaskLaunch = Status (*)(const gpu::Compute& gpu, const Tensor& features, Tensor& mask);
/// sums[j] = the sum of dy[.., j] over all rows. Memory in between is of `c`.
using GpuBiasGradientLaunch = Status (*)(KernelContext& c, const Tensor& dy, Tensor& sums);

/// Those of a variant.
struct GpuEpilogueLaunches {
  GpuEpilogueLaunch epilogue;
  GpuActivationGradientLaunch relu_gradient, gelu_gradient;
  GpuReluMaskLaunch relu_mask;
  GpuBiasGradientLaunch bias_gradient;
};

namespace on_cuda {
Status launch_epilogue(const gpu::Compute& gpu, const GpuEpilogue& epilogue, Tensor& y);
Status launch_relu_gradient(const gpu::Compute& gpu, const Tensor& features, Tensor& dy);
Status launch_gelu_gradient(const gpu::Compute& gpu, const Tensor& features, Tensor& dy);
Status launch_relu_mask(const gpu::Compute& gpu, const Tensor& features, Tensor& mask);
Status launch_bias_gradient(KernelContext& c, const Tensor& dy, Tensor& sums);
}  // namespace on_cuda
namespace on_fake {
Status launch_epilogue(const gpu::Compute& gpu, const GpuEpilogue& epilogue, Tensor& y);
Status launch_relu_gradient(const gpu::Compute& gpu, const Tensor& features, Tensor& dy);
Status launch_gelu_gradient(const gpu::Compute& gpu, const Tensor& features, Tensor& dy);
Status launch_relu_mask(const gpu::Compute& gpu, const Tensor& features, Tensor& mask);
Status launch_bias_gradient(KernelContext& c, const Tensor& dy, Tensor& sums);
}  // namespace on_fake

}  // namespace troupe
