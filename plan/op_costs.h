// SPDX-License-Identifier: Apache-2.0
// What a node costs in floating-point operations and bytes, as its op states it: by the shapes inferred for its graph,
// or by those that a step has.
#pragma once
#include <span>

#include "troupe/graph.h"

namespace troupe {

/// The shapes of a node's inputs and outputs.
struct NodeShapes {
  std::span<const PartialShape> inputs, outputs;
};

/// What the op states; nothing for control flow and for handles of resources.
NodeCost cost_of(const Node& node, const NodeShapes& shapes);
/// The same by the inferred shapes, with 0 for what is not a number: plans are made by it.
NodeCost cost_of(const Node& node);

/// Nanoseconds that a device is at work with it, by the inferred shapes: none for control flow, constants, what is fed,
/// and questions to resources other than updates.
double estimated_ns(const Node& node, const DeviceRates& rates);

}  // namespace troupe
