// SPDX-License-Identifier: Apache-2.0
// A real GPU for tests that otherwise run on what stands in for CUDA: where TROUPE_TEST_CUDA is set, as
// scripts/gpu-check does.
#pragma once
#include <catch2/catch.hpp>

#include <cstdlib>
#include <memory>

#include "actors/cuda_platform.h"
#include "gpu/logical_device.h"
#include "gpu/pinned_memory.h"

namespace troupe::testing {

inline bool on_real_gpu() { return std::getenv("TROUPE_TEST_CUDA") != nullptr; }

inline std::shared_ptr<const GpuPlatform> real_platform() {
  auto made = make_cuda_platform();
  INFO((made.ok() ? "" : made.error().str()));
  REQUIRE(made.ok());
  return std::move(*made);
}

/// A device on the first card, without an engine.
struct RealGpu {
  std::shared_ptr<const GpuPlatform> platform = real_platform();
  std::unique_ptr<gpu::Completions> completions =
      std::make_unique<gpu::Completions>(platform->runtime, gpu::CompletionsOptions{.card = 0});
  std::unique_ptr<gpu::LogicalDevice> device = make();

  ~RealGpu() { completions.reset(); }  // before what it watches

 private:
  std::unique_ptr<gpu::LogicalDevice> make() const {
    auto blas = platform->make_blas(0);
    auto dnn = platform->make_dnn(0);
    REQUIRE((blas.ok() && dnn.ok()));
    auto made = gpu::LogicalDevice::make(platform->runtime, {.memory = int64_t{4} << 30}, std::move(*blas),
                                         std::move(*dnn), gpu::make_pinned_allocator(platform->runtime), *completions);
    INFO((made.ok() ? "" : made.error().str()));
    REQUIRE(made.ok());
    return std::move(*made);
  }
};

}  // namespace troupe::testing
