// SPDX-License-Identifier: Apache-2.0
// What the kernels of CPUs and GPUs for DynamicStitch check. Implemented in ops/array/partition.cpp.
#pragma once
#include "troupe/kernel.h"

namespace troupe {

/// The shape of what the inputs of a DynamicStitch, indices and then as many tensors, make. Reads the indices. Errors:
/// negative ones, shapes that do not fit.
Result<Shape> stitched_shape(const KernelContext& c);

}  // namespace troupe
