// SPDX-License-Identifier: Apache-2.0
// Operands whose batches of matrices, all dimensions but the last two, broadcast. Implemented in
// ops/linear/matrix_batch.cpp.
#pragma once
#include <vector>

#include "troupe/op.h"
#include "troupe/scope.h"

namespace troupe {

/// By matrix of a batch of shape `batch`, the matrix of an operand whose own batch broadcasts to it.
std::vector<int64_t> matrix_indices(const Shape& batch, std::span<const int64_t> own);

/// Sums the gradient g of x over the batch dimensions along which x was broadcast against y.
Output sum_batches(GradientContext& c, Output g, Output x, Output y);

}  // namespace troupe
