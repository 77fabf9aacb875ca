// SPDX-License-Identifier: Apache-2.0
// What the kernels of CPUs and GPUs for Fill check. Implemented in ops/array/const.cpp.
#pragma once
#include "troupe/tensor.h"

namespace troupe {

/// The shape of a Fill of sizes `dims`, in the host's memory, by a value of this shape.
/// Errors: sizes that are not a vector, or negative; a value that is not a scalar.
Result<Shape> filled_shape(const Tensor& dims, const Shape& value);

}  // namespace troupe
