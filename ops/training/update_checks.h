// SPDX-License-Identifier: Apache-2.0
// What the kernels of CPUs and GPUs for updates check. Implemented in ops/training/updates.cpp.
#pragma once
#include <string>

#include "troupe/tensor.h"

namespace troupe {

constexpr int kMostVariables = 4, kMostScalars = 8;

/// "float32[2,3]".
std::string dtype_and_shape(const Tensor& t);
/// Errors: indices that are not a vector of int32 or int64.
Status check_row_indices(const Tensor& indices);
/// Whether the gradient g has a row for each index into variable v, all of this dtype and v of this shape.
Status check_rows(const std::string& name, const Tensor& v, const Shape& shape, const Tensor& g, const Tensor& indices,
                  DType dtype);

}  // namespace troupe
