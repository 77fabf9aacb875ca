// SPDX-License-Identifier: Apache-2.0
// How often the nodes of a step run in it.
#pragma once
#include <vector>

#include "graph/frames.h"
#include "troupe/cost_model.h"

namespace troupe {

/// Iterations of a loop of which nothing is known.
constexpr double kUnknownIterations = 10;

/// By node id. A node of which `costs` (nullptr: none) know how often it ran in a step runs as often. Of the others
/// each runs once, whatever branch it is in, and those of a loop in each of its iterations: as many as nodes measured
/// there tell; else as many as the condition allows, where it compares a counter that begins and steps by constants
/// with a constant (the loop of a gradient does, if that which it goes back does and is in no other); else
/// kUnknownIterations.
std::vector<double> firings_of(const StepGraph& step, const Frames& frames, const CostModel* costs);

}  // namespace troupe
