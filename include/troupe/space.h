// SPDX-License-Identifier: Apache-2.0
// Space: where memory is. Implemented in tensor/.
#pragma once
#include <cstdint>

#include "troupe/export.h"

namespace TROUPE_API troupe {

/// Who can read memory: the host (and, where it is pinned, GPUs by copies), or GPUs alone.
enum class Space : uint8_t { kHost = 0, kGpu = 1 };
const char* to_string(Space space);

}  // namespace troupe
