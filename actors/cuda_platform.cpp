// SPDX-License-Identifier: Apache-2.0
#include "actors/cuda_platform.h"

#include "gpu/cuda_runtime.h"

namespace troupe {

Result<std::shared_ptr<const GpuPlatform>> make_cuda_platform() {
  TROUPE_RETURN_IF_ERROR(gpu::make_cuda_runtime().status());
  return make_error(Code::kUnavailable, "the kernels of GPUs are not built for CUDA yet");
}

}  // namespace troupe
