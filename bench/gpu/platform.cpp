// SPDX-License-Identifier: Apache-2.0
#include "bench/gpu/platform.h"

#include "gpu/fake/fake_blas.h"
#include "gpu/fake/fake_dnn.h"
#include "gpu/fake/fake_runtime.h"
#include "ops/gpu_kernels.h"

namespace troupe::bench {

Result<std::shared_ptr<const GpuPlatform>> platform_of(bool fake) {
  if (!fake) return make_cuda_platform();
  auto out = std::make_shared<GpuPlatform>();
  out->runtime = std::make_shared<gpu::FakeRuntime>(
      gpu::FakeOptions{.memory = size_t{4} << 30, .by_hand = false, .checked = false});
  out->make_blas = [](int) -> Result<std::shared_ptr<gpu::Blas>> { return gpu::make_fake_blas(); };
  out->make_dnn = [](int) -> Result<std::shared_ptr<gpu::Dnn>> { return gpu::make_fake_dnn(); };
  out->register_kernels = on_fake::register_gpu_kernels;
  return std::shared_ptr<const GpuPlatform>(std::move(out));
}

}  // namespace troupe::bench
