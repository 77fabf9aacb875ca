// SPDX-License-Identifier: Apache-2.0
// The Runtime of real cards. Implemented in gpu/cuda/, where the build has CUDA's toolkit.
#pragma once
#include <memory>

#include "gpu/runtime.h"

namespace troupe::gpu {

/// CUDA of this process, with all cards that it may see. It makes no context of a card before something is made there.
/// Its calls set the calling thread's current CUDA device. Only in builds with CUDA. Errors: kUnavailable, in one line,
/// when there is no driver, the driver is too old (with both versions), or there is no card.
Result<std::shared_ptr<Runtime>> make_cuda_runtime();

}  // namespace troupe::gpu
