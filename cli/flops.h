// SPDX-License-Identifier: Apache-2.0
// What a node costs in floating-point operations, as far as the shapes inferred for its graph tell.
#pragma once
#include "troupe/graph.h"

namespace troupe {

/// The product of the sizes; those that are not known count as one.
double elements_of(const PartialShape& shape);

/// Multiplications and additions of products and convolutions; one operation for each element that a window covers, a
/// reduction takes in, an update changes, or other arithmetic on floats puts out; none for moving elements.
double flops_of(const Node& node);

}  // namespace troupe
