// SPDX-License-Identifier: Apache-2.0
// What the kernels of CPUs and GPUs for Fill and Range check. Implemented in ops/array/const.cpp.
#pragma once
#include "troupe/tensor.h"

namespace troupe {

/// The shape of a Fill of sizes `dims`, in the host's memory, by a value of this shape.
/// Errors: sizes that are not a vector, or negative; a value that is not a scalar.
Result<Shape> filled_shape(const Tensor& dims, const Shape& value);

/// How many numbers a Range of scalars in the host's memory has. Errors: others than scalars; a delta of 0 or of the
/// wrong sign; too many. For numbers that GPUs' Range has.
template <class T> Result<int64_t> range_length(const Tensor& start, const Tensor& limit, const Tensor& delta);

}  // namespace troupe
