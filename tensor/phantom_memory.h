// SPDX-License-Identifier: Apache-2.0
// Memory of simulated devices whose kernels do not run: address space that is zero when read and takes memory only
// where it is written.
#pragma once
#include "troupe/allocator.h"

namespace troupe {

/// An allocator with its own count and limit (0: none), whose blocks are zero. Those of at least 16 KiB are phantom,
/// and kept for reuse by size; smaller ones are ordinary memory.
std::shared_ptr<Allocator> make_phantom_allocator(int64_t limit = 0);

}  // namespace troupe
