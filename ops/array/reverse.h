// SPDX-License-Identifier: Apache-2.0
// What the kernels of CPUs and GPUs for ReverseSequence check. Implemented in ops/array/reverse.cpp.
#pragma once
#include "troupe/attr.h"

namespace troupe {

/// The dimension along which sequences go, and that which numbers them.
struct SequenceAxes {
  int sequence = 0, batch = 0;
};
/// By attributes seq_dim and batch_dim. Errors: dimensions that are not there, or one; lengths that are not one for
/// each sequence.
Result<SequenceAxes> plan_reverse_sequence(const Attrs& attrs, const Shape& x, const Shape& lengths);

}  // namespace troupe
