// SPDX-License-Identifier: Apache-2.0
// Reductions over some dimensions of a tensor: which elements meet in which result. For CPUs and GPUs.
// Implemented in ops/parts/reduce_plan.cpp.
#pragma once
#include <array>
#include <span>

#include "troupe/tensor.h"

namespace troupe {

/// Dimensions of one kind, outermost first, with their strides in the input.
struct ReduceDims {
  int rank = 0;
  std::array<int64_t, kMaxRank> size{}, stride{};
  int64_t count() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= size[i];
    return n;
  }
  int64_t offset(int64_t index) const {
    int64_t at = 0;
    for (int i = rank - 1; i > 0; --i) {
      at += index % size[i] * stride[i];
      index /= size[i];
    }
    return rank > 0 ? at + index * stride[0] : 0;
  }
  void push(int64_t n, int64_t s) {
    size[rank] = n;
    stride[rank++] = s;
  }
};

/// The input as kept and reduced dimensions around an innermost run of one kind. Neighbours of one kind are merged.
struct ReducePlan {
  ReduceDims kept, reduced;  // without the innermost run
  int64_t inner = 1;
  bool inner_reduced = false;
};
ReducePlan plan_reduce(const Shape& x, std::span<const bool> reduced);

/// Which dimensions an int32 or int64 scalar or vector of axes names; negative ones count from the end.
/// Errors: an axis out of range or named twice, with the rank.
Result<std::array<bool, kMaxRank>> reduced_axes(const Tensor& axes, int rank);
/// The shape after reduction.
Shape reduced_shape(const Shape& x, std::span<const bool> reduced, bool keep_dims);
/// The same as reduced_axes of the one dimension of ArgMax and ArgMin, which may not be empty.
Result<std::array<bool, kMaxRank>> arg_axes(const Shape& x, const Tensor& dimension);

}  // namespace troupe
