// SPDX-License-Identifier: Apache-2.0
// How much work a node is: what its op states of it, for placement, the cost model and the simulator. Implemented in
// graph/op_cost.cpp.
#pragma once
#include <functional>
#include <span>

#include "troupe/device_rates.h"
#include "troupe/dtype.h"
#include "troupe/export.h"
#include "troupe/shape.h"

namespace TROUPE_API troupe {

class Attrs;
class Node;

/// What a node has to do.
struct NodeCost {
  double flops = 0;
  double bytes = 0;  // read and written

  /// By the roofline: the longer of arithmetic and memory, and the launch; 0 where there is nothing to do.
  double time_ns(const DeviceRates& rates) const;
};

/// The product of the sizes; those that are not known count as one.
double elements_of(const PartialShape& shape);
/// Bytes of a tensor of that type and shape; those of strings and handles count as those of a pointer.
double bytes_of(DType dtype, const PartialShape& shape);

/// What a cost function sees of a node: its attributes, and the shapes that were inferred or that a step has. Sizes
/// that are not known count as one; an input or output that the node does not have has no elements. Refers to the node
/// and the shapes.
class CostContext {
 public:
  CostContext(const Node& node, std::span<const PartialShape> inputs, std::span<const PartialShape> outputs)
      : node_(node), inputs_(inputs), outputs_(outputs) {}
  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  int num_outputs() const { return static_cast<int>(outputs_.size()); }
  DType input_dtype(int i) const;
  DType output_dtype(int i) const;
  double input_elements(int i) const;
  double output_elements(int i) const;
  double input_bytes(int i) const;
  double output_bytes(int i) const;
  /// One size of input or output i; negative dimensions count from the last. 1 where there is none.
  double input_size(int i, int dimension) const;
  double output_size(int i, int dimension) const;
  /// Of every input and output once.
  double all_bytes() const;
  const Attrs& attrs() const;

 private:
  const Node& node_;
  std::span<const PartialShape> inputs_, outputs_;
};

/// What a node costs when it runs once. Called by any thread; must not throw. Operations or bytes that are NaN count as
/// none where a step is planned, and are an error of the node on a simulated device.
using CostFn = std::function<NodeCost(const CostContext&)>;

/// Cost functions that many ops share. All but no_cost and pick_cost read every input and write every output once.
NodeCost arithmetic_cost(const CostContext& c);  // one operation for each floating-point element of the largest output
NodeCost reduction_cost(const CostContext& c);   // one for each element of input 0
NodeCost update_cost(const CostContext& c);      // one for each element of the largest floating-point input
NodeCost move_cost(const CostContext& c);        // no arithmetic
NodeCost pick_cost(const CostContext& c);        // the same, and of input 0 only as much is read as is put out
NodeCost no_cost(const CostContext& c);          // outputs share memory with inputs, or are known beforehand

}  // namespace troupe
