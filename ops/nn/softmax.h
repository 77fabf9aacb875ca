// SPDX-License-Identifier: Apache-2.0
// What the kernels of CPUs and GPUs for Softmax and cross-entropies check. Implemented in ops/nn/softmax.cpp.
#pragma once
#include "troupe/error.h"
#include "troupe/shape.h"

namespace troupe {

/// Errors: a scalar.
Status check_logits(const Shape& logits);
/// The shape that logits and labels of a cross-entropy broadcast to. Errors: they are not matrices, or do not
/// broadcast.
Result<Shape> cross_entropy_shape(const Shape& logits, const Shape& labels);
/// Errors: labels that are not one class for each row of logits.
Status check_sparse_labels(const Shape& labels, const Shape& logits);

}  // namespace troupe
