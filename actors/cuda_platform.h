// SPDX-License-Identifier: Apache-2.0
// The platform of CUDA. Implemented in actors/cuda_platform.cpp.
#pragma once
#include <memory>

#include "devices/gpu_platform.h"

namespace troupe {

/// CUDA's runtime and libraries, with the kernels that are built for it. Error: kUnavailable, in one line: what is
/// missing (the driver, a card, or support for CUDA in this build).
Result<std::shared_ptr<const GpuPlatform>> make_cuda_platform();

}  // namespace troupe
