// SPDX-License-Identifier: Apache-2.0
// The order in which a first-in, first-out run queue fires nodes.
#pragma once
#include <vector>

#include "graph/step_graph.h"

namespace troupe {

/// The nodes of `step` in the order in which one run queue fires them when each joins it as the last of its inputs is
/// done: by depth, and within a depth by which node is waited for last. What is laid out in this order is walked from
/// front to back. An input that comes later among the nodes (the back edge of a loop) or is not one of them does not
/// count. Time: n log n at worst, with memory for a number for each node of the graph.
std::vector<const Node*> firing_order(const StepGraph& step);

}  // namespace troupe
