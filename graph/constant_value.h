// SPDX-License-Identifier: Apache-2.0
// Values that are known while a graph is built, for shape functions whose output depends on them.
#pragma once
#include <optional>

#include "troupe/graph.h"

namespace troupe {

/// The value of `output` where it is a Const, or follows from constants and known shapes through Identity,
/// Shape, Size, Rank, Pack, StridedSlice and Cast of integers, into branches and loops too; none where it is not known,
/// or is larger than a shape can need.
std::optional<Tensor> constant_value(Output output);

/// Where the value of `output` comes from: through Identity, into branches (Switch) and loops (a constant Enter).
Output passed_on(Output output);

}  // namespace troupe
