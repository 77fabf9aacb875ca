// SPDX-License-Identifier: Apache-2.0
#include "ops/gpu_kernels.h"

namespace troupe {

bool add_cuda_kernels([[maybe_unused]] KernelRegistry& kernels) {
#ifdef TROUPE_WITH_CUDA
  on_cuda::register_gpu_kernels(kernels);
  return true;
#else
  return false;
#endif
}

}  // namespace troupe
