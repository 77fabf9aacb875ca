// SPDX-License-Identifier: Apache-2.0
// Gradients of the ops on tensor arrays: what reads an array writes the array of its gradients, and the other way
// round; the gradients by flows say in which order.
#pragma once
#include "troupe/op.h"

namespace troupe {

Status array_write_gradient(GradientContext& c);
Status array_read_gradient(GradientContext& c);
Status array_gather_gradient(GradientContext& c);
Status array_scatter_gradient(GradientContext& c);
Status array_concat_gradient(GradientContext& c);
Status array_split_gradient(GradientContext& c);

}  // namespace troupe
