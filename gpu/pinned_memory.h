// SPDX-License-Identifier: Apache-2.0
// Pinned host memory for tensors that cards copy from and to. Pinning takes the system a thousand times as long as an
// allocation, so memory is pinned by segments and kept.
#pragma once
#include <cstdint>
#include <memory>

#include "gpu/runtime.h"
#include "troupe/allocator.h"

namespace troupe::gpu {

/// An allocator of memory that Runtime::pin() gave. Blocks are free to be used again when they are freed: whoever frees
/// one knows that copies from and to it are done. `limit`: bytes that may be pinned, 0: no limit. trim() unpins
/// segments that are wholly free, for which the system may wait for the cards. Keeps the runtime.
std::shared_ptr<Allocator> make_pinned_allocator(std::shared_ptr<Runtime> runtime, int64_t limit = 0);

}  // namespace troupe::gpu
