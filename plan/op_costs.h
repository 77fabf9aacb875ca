// SPDX-License-Identifier: Apache-2.0
// What a node costs in floating-point operations and bytes: by the shapes inferred for its graph, or by those that a
// step has.
#pragma once
#include <span>

#include "troupe/cost_model.h"

namespace troupe {

/// The shapes of a node's inputs and outputs.
struct NodeShapes {
  std::span<const PartialShape> inputs, outputs;
};

/// The product of the sizes; those that are not known count as one.
double elements_of(const PartialShape& shape);

/// Bytes of a tensor of that type and shape; those of strings and handles count as those of a pointer.
double bytes_of(DType dtype, const PartialShape& shape);

/// Multiplications and additions of products and convolutions; one operation for each element that a window covers, a
/// reduction takes in, an update changes, or other arithmetic on floats puts out; none for moving elements.
double flops_of(const Node& node, const NodeShapes& shapes);
double flops_of(const Node& node);

/// The same with what the node reads and writes: every input and output once, but for nodes that only hand on what they
/// get (Identity, Reshape, control flow, handles), which move nothing.
NodeCost cost_of(const Node& node, const NodeShapes& shapes);
NodeCost cost_of(const Node& node);

/// Whether it changes a variable where that lives, which takes arithmetic.
bool updates_variable(const Node& node);

/// Nanoseconds that a device is at work with it, by the inferred shapes: none for control flow, constants, what is fed,
/// and questions to resources that are no updates.
double estimated_ns(const Node& node, const DeviceRates& rates);

}  // namespace troupe
