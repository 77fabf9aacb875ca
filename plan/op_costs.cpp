// SPDX-License-Identifier: Apache-2.0
#include "plan/op_costs.h"

#include <cmath>

namespace troupe {
namespace {

bool is_handle(const Node& n) { return n.inputs().empty() && n.num_outputs() == 1 && n.dtype(0) == DType::kResource; }

}  // namespace

NodeCost cost_of(const Node& node, const NodeShapes& shapes) {
  if (node.op().control_flow() != ControlFlow::kNone || is_handle(node)) return {};
  return node.op().cost_fn()(CostContext(node, shapes.inputs, shapes.outputs));
}

NodeCost cost_of(const Node& node) {
  std::vector<PartialShape> inputs, outputs;
  for (const Output& in : node.inputs()) inputs.push_back(in.shape());
  for (int i = 0; i < node.num_outputs(); ++i) outputs.push_back(node.shape(i));
  NodeCost cost = cost_of(node, {inputs, outputs});
  // NaN is neither more nor less than others: a search by it would not end.
  if (std::isnan(cost.flops)) cost.flops = 0;
  if (std::isnan(cost.bytes)) cost.bytes = 0;
  return cost;
}

double estimated_ns(const Node& node, const DeviceRates& rates) {
  const bool asks = !node.inputs().empty() && node.inputs()[0].dtype() == DType::kResource;
  if (asks && !node.op().does_update_variable()) return 0;
  return cost_of(node).time_ns(rates);
}

}  // namespace troupe
