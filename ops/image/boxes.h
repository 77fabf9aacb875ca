// SPDX-License-Identifier: Apache-2.0
// A box in an image, and how much two have in common.
#pragma once
#include <algorithm>

namespace troupe {

/// A box by its corners y1, x1, y2, x2, in any order.
struct Box {
  float top, left, bottom, right;
  explicit Box(const float* corners)
      : top(std::min(corners[0], corners[2])), left(std::min(corners[1], corners[3])),
        bottom(std::max(corners[0], corners[2])), right(std::max(corners[1], corners[3])) {}
  float area() const { return (bottom - top) * (right - left); }
  /// The area that both have.
  float common(const Box& other) const {
    const float high = std::min(bottom, other.bottom) - std::max(top, other.top);
    const float wide = std::min(right, other.right) - std::max(left, other.left);
    return std::max(high, 0.f) * std::max(wide, 0.f);
  }
  /// The common area over that of both together; 0 where one has none.
  float overlap(const Box& other) const {
    if (!(area() > 0) || !(other.area() > 0)) return 0;
    const float both = common(other);
    return both / (area() + other.area() - both);
  }
};

}  // namespace troupe
