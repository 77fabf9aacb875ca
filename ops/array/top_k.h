// SPDX-License-Identifier: Apache-2.0
// What the kernels of CPUs and GPUs for OneHot, TopK and InTopK check. Implemented in ops/array/top_k.cpp.
#pragma once
#include "troupe/kernel.h"

namespace troupe {

/// The result is [..., depth, inner] elements.
struct OneHotPlan {
  Shape shape;
  int64_t depth = 0, inner = 1;
};
/// `depth` is in the host's memory. Errors: a depth below 0, values that are not scalars, an axis that is not there.
Result<OneHotPlan> plan_one_hot(const Shape& indices, const Tensor& depth, const Shape& on, const Shape& off,
                                int64_t axis);

/// The k of a node: that of its input of this number, in the host's memory, where it has one, else its attribute.
Result<int64_t> rank_asked(const KernelContext& c, int64_t attribute, int input);
/// The shape of the k largest of each row. Errors: a scalar, a k that no row has.
Result<Shape> top_shape(const Shape& x, int64_t k);
/// Errors: targets that are not one for each row of predictions.
Status check_in_top(const Shape& predictions, const Shape& targets);

}  // namespace troupe
