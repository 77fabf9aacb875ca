// SPDX-License-Identifier: Apache-2.0
// The sizes of chunks, wherever something is parted among several. Implemented in base/.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

/// The sizes of the chunks that `size` elements are parted into: as even as may be, the larger ones first.
inline std::vector<int64_t> chunk_sizes(int64_t size, size_t chunks) {
  const auto n = static_cast<int64_t>(chunks);
  std::vector<int64_t> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(size / n + (i < size % n ? 1 : 0));
  return out;
}

}  // namespace troupe
