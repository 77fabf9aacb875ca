// SPDX-License-Identifier: Apache-2.0
// Plans of reductions.
#include "ops/parts/reduce_plan.h"

#include <algorithm>

#include "ops/parts/index_tensors.h"

namespace troupe {

ReducePlan plan_reduce(const Shape& x, std::span<const bool> reduced) {
  ReducePlan plan;
  // Merge neighbours of one kind.
  std::array<int64_t, kMaxRank> size{}, stride{};
  std::array<bool, kMaxRank> kind{};
  int n = 0;
  int64_t step = 1;
  for (int d = x.rank() - 1; d >= 0; --d) {
    if (x[d] == 1) continue;
    if (n > 0 && kind[n - 1] == reduced[d]) {
      size[n - 1] *= x[d];
    } else {
      size[n] = x[d];
      stride[n] = step;
      kind[n++] = reduced[d];
    }
    step *= x[d];
  }
  if (n > 0) {
    plan.inner = size[0];
    plan.inner_reduced = kind[0];
  }
  for (int i = n - 1; i > 0; --i) (kind[i] ? plan.reduced : plan.kept).push(size[i], stride[i]);
  return plan;
}

Result<std::array<bool, kMaxRank>> reduced_axes(const Tensor& axes, int rank) {
  TROUPE_ASSIGN(const std::vector<int64_t> values, int_values(axes, "the axes"));
  std::array<bool, kMaxRank> out{};
  for (int64_t axis : values) {
    TROUPE_ASSIGN(const int place, axis_from(axis, rank));
    bool& at = out[place];
    if (at) return invalid_argument("axis {} is named twice", axis);
    at = true;
  }
  return out;
}

Shape reduced_shape(const Shape& x, std::span<const bool> reduced, bool keep_dims) {
  Shape out;
  for (int i = 0; i < x.rank(); ++i) {
    if (!reduced[i]) out.push_back(x[i]);
    else if (keep_dims) out.push_back(1);
  }
  return out;
}

Result<std::array<bool, kMaxRank>> arg_axes(const Shape& x, const Tensor& dimension) {
  if (dimension.rank() != 0) return invalid_argument("dimension must be a scalar, not {}", dimension.shape().str());
  TROUPE_ASSIGN(const auto axes, reduced_axes(dimension, x.rank()));
  const int axis = static_cast<int>(std::ranges::find(axes, true) - axes.begin());
  if (x[axis] == 0) return invalid_argument("dimension {} of {} is empty", axis, x.str());
  return axes;
}

}  // namespace troupe
