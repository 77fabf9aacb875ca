// SPDX-License-Identifier: Apache-2.0
// Calls into kernels.
#pragma once
#include "troupe/guarded.h"
#include "troupe/kernel.h"

namespace troupe {

inline Status run_kernel(ComputeKernel& kernel, KernelContext& context) {
  return guarded([&] { return kernel.compute(context); });
}

}  // namespace troupe
