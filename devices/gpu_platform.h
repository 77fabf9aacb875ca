// SPDX-License-Identifier: Apache-2.0
// GpuPlatform: what GPU devices are made of: CUDA (actors/cuda_platform.h), or what stands in for it in tests.
#pragma once
#include <functional>
#include <memory>

#include "gpu/collectives.h"
#include "gpu/compute.h"
#include "troupe/kernel.h"

namespace troupe {

/// A value. Its functions may be called by any thread.
struct GpuPlatform {
  std::shared_ptr<gpu::Runtime> runtime;
  /// The library of matrix products, for one device of a card; empty: there is none, and no kernel asks for it.
  std::function<Result<std::shared_ptr<gpu::Blas>>(int card)> make_blas = {};
  /// The same of convolutions.
  std::function<Result<std::shared_ptr<gpu::Dnn>>(int card)> make_dnn = {};
  /// The library of collectives among cards; empty or an error: devices of several cards take rings.
  std::function<Result<std::shared_ptr<gpu::Collectives>>()> make_collectives = {};
  /// Adds the kernels of GPUs.
  std::function<void(KernelRegistry&)> register_kernels = {};
};

}  // namespace troupe
