// SPDX-License-Identifier: Apache-2.0
// What Reshape and ops like it do to a shape. Implemented in ops/array/reshape.cpp.
#pragma once
#include "troupe/op.h"

namespace troupe {

/// The shape asked of a Reshape of a tensor of shape `from`, its -1 filled in; where `from` is not known -1 stays.
/// Errors: two sizes left open, a shape of another number of elements.
Result<PartialShape> reshaped(const Tensor& sizes, const PartialShape& from);

/// The shape function of Reshape: output 0 is input 0 in the shape that input 1 says.
Status reshape_shape(ShapeContext& c);

}  // namespace troupe
