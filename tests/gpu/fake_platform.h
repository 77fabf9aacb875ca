// SPDX-License-Identifier: Apache-2.0
// GPUs for engines of tests: kernels run by the shim, on a fake of CUDA whose checker sees what is not ordered; or a
// real one (tests/gpu/real_gpu.h).
#pragma once
#include <catch2/catch.hpp>

#include "devices/gpu_platform.h"
#include "gpu/fake/fake_blas.h"
#include "gpu/fake/fake_collectives.h"
#include "gpu/fake/fake_dnn.h"
#include "gpu/fake/fake_runtime.h"
#include "ops/gpu_kernels.h"
#include "tests/gpu/real_gpu.h"
#include "tests/op_library.h"
#include "troupe/engine.h"

namespace troupe::testing {

struct FakeGpus {
  explicit FakeGpus(gpu::FakeOptions options = {}) {
    if (options.memory < gpu::FakeOptions().memory) limit = options.memory;
    if (on_real_gpu()) {
      platform = real_platform();
      return;
    }
    options.by_hand = false;
    runtime = std::make_shared<gpu::FakeRuntime>(options);
    collectives = std::make_shared<gpu::FakeCollectives>(runtime);
    platform = std::make_shared<const GpuPlatform>(GpuPlatform{
        .runtime = runtime,
        .make_blas = [](int) -> Result<std::shared_ptr<gpu::Blas>> { return gpu::make_fake_blas(); },
        .make_dnn = [](int) -> Result<std::shared_ptr<gpu::Dnn>> { return gpu::make_fake_dnn(); },
        .make_collectives = [library = collectives]() -> Result<std::shared_ptr<gpu::Collectives>> {
          return std::shared_ptr<gpu::Collectives>(library);
        },
        .register_kernels = on_fake::register_gpu_kernels,
    });
  }
  /// Nothing was used by two who did not agree on an order.
  ~FakeGpus() {
    if (!runtime) return;
    for (const std::string& fault : runtime->faults()) FAIL_CHECK(fault);
  }
  /// Of fewer real cards each is several devices.
  EngineOptions options(int cards = 1, int devices_per_card = 1) const {
    if (const int there = static_cast<int>(platform->runtime->cards().size()); cards > there) {
      devices_per_card = (cards * devices_per_card + there - 1) / there;
      cards = there;
    }
    GpuOptions gpus{.cards = cards, .devices_per_card = devices_per_card, .platform = platform};
    if (on_real_gpu()) gpus.memory_limit = limit;
    return {.cpu_threads = {1}, .gpus = std::move(gpus), .op_library = op_library()};
  }

  int64_t limit = 0;                                  // bytes of a device, where a test asked for few; else 0
  std::shared_ptr<gpu::FakeRuntime> runtime;          // none: a real GPU, on which nothing fails on demand
  std::shared_ptr<gpu::FakeCollectives> collectives;  // of the fake
  std::shared_ptr<const GpuPlatform> platform;
};

}  // namespace troupe::testing
