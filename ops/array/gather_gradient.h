// SPDX-License-Identifier: Apache-2.0
// The gradient of reading by index, which is adding up by index.
#pragma once
#include "troupe/graph.h"
#include "troupe/op.h"

namespace troupe {

/// The gradient by x of a gather: each slice of dy added to the place of x it was taken from. `indices`, int32 or
/// int64, go into dimension `axis` of x; the first `batch` dimensions of both go together. The ranks of x and of the
/// indices are known.
Output gather_gradient(GradientContext& c, Output x, Output indices, Output dy, int axis, int batch);

}  // namespace troupe
