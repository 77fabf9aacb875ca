// SPDX-License-Identifier: Apache-2.0
// Elements that only move go as pieces of up to 16 bytes: of the size of an element, or of several side by side.
#pragma once
#include "gpu/launch.h"

namespace troupe::TROUPE_GPU_VARIANT {

struct alignas(16) Bytes16 {
  uint64_t at[2];
};

/// Calls f.template operator()<S>() with an S of so many bytes: 1, 2, 4, 8 or 16.
template <class F> auto with_piece(int64_t bytes, F&& f) {
  switch (bytes) {
    case 1: return f.template operator()<uint8_t>();
    case 2: return f.template operator()<uint16_t>();
    case 4: return f.template operator()<uint32_t>();
    case 8: return f.template operator()<uint64_t>();
    default: return f.template operator()<Bytes16>();
  }
}

/// Finds the largest piece of which all that it is told are multiples.
class Piece {
 public:
  void take(int64_t bytes) { all_ |= static_cast<uint64_t>(bytes); }
  void take(const void* at) { all_ |= reinterpret_cast<uintptr_t>(at); }
  int64_t bytes() const { return static_cast<int64_t>(all_ & -all_); }

 private:
  uint64_t all_ = 16;
};

}  // namespace troupe::TROUPE_GPU_VARIANT
