// SPDX-License-Identifier: Apache-2.0
// Calls into kernels, and what is asked of their outputs. Implemented in devices/run_kernel.cpp.
#pragma once
#include <span>

#include "troupe/guarded.h"
#include "troupe/kernel.h"

namespace troupe {

inline Status run_kernel(ComputeKernel& kernel, KernelContext& context) {
  return guarded([&] { return kernel.compute(context); });
}

/// Holds what a kernel put out against what its node declares: number, that each is set, dtype, shape, and of a GPU's
/// kernel whose memory it is in. The last two of checked kernels only: Troupe's own are tested, and the inferred shape
/// of a variable may be a promise that a graph from elsewhere does not keep. `constant`: it is what
/// ComputeKernel::constant() gives, which is in the host's memory whatever the kernel. Error: kInternal.
Status check_outputs(const Node& node, const Kernel& kernel, std::span<const Tensor> outputs, bool constant = false);

}  // namespace troupe
