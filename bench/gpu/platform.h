// SPDX-License-Identifier: Apache-2.0
// The GPUs that benchmarks run on.
#pragma once
#include "actors/cuda_platform.h"

namespace troupe::bench {

/// CUDA, or with `fake` what stands in for it, to try a program without a card: its times mean nothing. Error: there is
/// no card.
Result<std::shared_ptr<const GpuPlatform>> platform_of(bool fake);

}  // namespace troupe::bench
