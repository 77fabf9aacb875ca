// SPDX-License-Identifier: Apache-2.0
// Values that are known while a graph is built, for shape functions whose output depends on them.
#pragma once
#include <optional>

#include "troupe/graph.h"

namespace troupe {

/// The value of `output` where it is a Const, as it passes through Identity, into branches and loops, or where it is a
/// number or vector of integers that follows from constants and known shapes by the arithmetic of shapes: Shape, Size,
/// Rank, Cast, Pack, ConcatV2, StridedSlice, GatherV2, ExpandDims, Prod, sums, differences, products and quotients.
/// None where it is not known, or is larger than a shape can need.
std::optional<Tensor> constant_value(Output output);

/// The shape whose sizes the vector `output` holds, as far as they follow so. A negative one counts as unknown.
PartialShape known_sizes(Output output);

/// Whether something of the value is known so: a shape may have been inferred from it.
bool is_partly_known(Output output);

/// Where the value of `output` comes from: through Identity, into branches (Switch) and loops (a constant Enter).
Output passed_on(Output output);

}  // namespace troupe
