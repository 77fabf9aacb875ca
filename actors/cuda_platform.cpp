// SPDX-License-Identifier: Apache-2.0
#include "actors/cuda_platform.h"

#include "gpu/cublas.h"
#include "gpu/cuda_runtime.h"
#include "gpu/cudnn.h"
#include "gpu/nccl.h"
#include "ops/gpu_kernels.h"

namespace troupe {

Result<std::shared_ptr<const GpuPlatform>> make_cuda_platform() {
#ifdef TROUPE_WITH_CUDA
  auto platform = std::make_shared<GpuPlatform>();
  TROUPE_ASSIGN(platform->runtime, gpu::make_cuda_runtime());
  platform->make_blas = gpu::make_cublas;
  platform->make_dnn = [runtime = platform->runtime](int card) -> Result<std::shared_ptr<gpu::Dnn>> {
    return gpu::make_cudnn({.card = card, .runtime = runtime});
  };
  platform->make_collectives = gpu::make_nccl;
  platform->register_kernels = on_cuda::register_gpu_kernels;
  return std::shared_ptr<const GpuPlatform>(std::move(platform));
#else
  return make_error(Code::kUnavailable, "CUDA: Troupe was built without it (TROUPE_CUDA)");
#endif
}

}  // namespace troupe
