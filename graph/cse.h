// SPDX-License-Identifier: Apache-2.0
// Merging of common subexpressions.
#pragma once
#include <span>
#include <vector>

#include "troupe/graph.h"

namespace troupe {

/// For each of `nodes`, which come inputs first, the node that computes the same: itself, or an earlier one of the same
/// op, attributes, device, inputs and control inputs, where inputs count as the same when their nodes merge.
/// What stands for itself: stateful ops, nodes of which an output is in `fed`, and all nodes without inputs but Const
/// (Placeholder, NoOp). Nothing changes in the graph: whoever plans a step uses the survivors.
/// Time: linear in nodes and their edges; constants that look alike are compared bit by bit.
std::vector<const Node*> merge_common(std::span<const Node* const> nodes, std::span<const Output> fed = {});

}  // namespace troupe
