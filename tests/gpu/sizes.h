// SPDX-License-Identifier: Apache-2.0
// Sizes that tests of GPU memory count in.
#pragma once
#include <cstdint>

namespace troupe::gpu {

inline constexpr int64_t kMiB = int64_t{1} << 20;

}  // namespace troupe::gpu
