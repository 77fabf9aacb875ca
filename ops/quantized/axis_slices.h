// SPDX-License-Identifier: Apache-2.0
// A tensor by its slices along an axis, each of which has a parameter.
#pragma once
#include "troupe/error.h"
#include "troupe/tensor.h"

namespace troupe {

/// A tensor by its `count` slices along an axis, or as one where that is -1. Slice k is outer runs of inner elements.
struct AxisSlices {
  int64_t outer = 1, count = 1, inner = 1;

  /// Errors: an axis that x has not.
  static Result<AxisSlices> of(const Shape& x, int64_t axis) {
    AxisSlices s{1, 1, x.elements()};
    if (axis == -1) return s;
    if (axis < 0 || axis >= x.rank()) return invalid_argument("axis {} of input {}", axis, x.str());
    s.count = x[static_cast<int>(axis)];
    s.inner = 1;
    for (int i = 0; i < x.rank(); ++i)
      if (i != axis) (i < axis ? s.outer : s.inner) *= x[i];
    return s;
  }
  /// Calls f(begin, end) for each run of slice k.
  template <class F> void runs(int64_t k, F&& f) const {
    for (int64_t o = 0; o < outer; ++o) f((o * count + k) * inner, (o * count + k + 1) * inner);
  }
  /// Errors: a bound that is neither one number (axis -1) nor a vector of as many as there are slices.
  Status check(const Tensor& bound, const char* name, int64_t axis) const {
    if (axis == -1 ? bound.elements() == 1 : bound.rank() == 1 && bound.elements() == count) return {};
    return invalid_argument("{} of shape {} for {} slices", name, bound.shape().str(), count);
  }
};

}  // namespace troupe
