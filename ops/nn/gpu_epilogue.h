// SPDX-License-Identifier: Apache-2.0
// Epilogues of fused nodes on GPUs: bias and activation in one pass over the result of a product, in place. The kernel
// is in ops/nn/epilogue.cu.
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

namespace on_cuda {
Status launch_epilogue(const gpu::Compute& gpu, const GpuEpilogue& epilogue, Tensor& y);
}
namespace on_fake {
Status launch_epilogue(const gpu::Compute& gpu, const GpuEpilogue& epilogue, Tensor& y);
}

}  // namespace troupe
