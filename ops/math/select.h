// SPDX-License-Identifier: Apache-2.0
// What the kernels of CPUs and GPUs for Select and AddN check. Implemented in ops/math/select.cpp.
#pragma once
#include "ops/parts/broadcast.h"
#include "troupe/kernel.h"

namespace troupe {

/// How condition (input 0), t and e (1 and 2) are read. They broadcast; with `legacy`, Select's rule: the condition is
/// a scalar, of the same shape, or a vector that chooses rows.
Result<Broadcast> plan_select(Shape condition, const Shape& then, const Shape& other, bool legacy);

/// Checks that all inputs of a sum have one shape, that of `wanted`. The input whose buffer the sum may take.
Result<int> check_sum(const KernelContext& c, const PartialShape& wanted);

}  // namespace troupe
