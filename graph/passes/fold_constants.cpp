// SPDX-License-Identifier: Apache-2.0
// Which nodes are folded, and the limits of what they become.
#include "graph/passes/fold_constants.h"

#include <algorithm>

#include "graph/constant_value.h"

namespace troupe {
namespace {

/// Bytes of all outputs where their shapes are known, else none.
std::optional<double> known_bytes(const StepGraph& step, const Node& node) {
  double bytes = 0;
  for (int port = 0; port < node.num_outputs(); ++port) {
    const PartialShape shape = step.shape({&node, port});
    if (!shape.fully_known()) return {};
    double elements = 1;
    for (int64_t d : shape.dims()) elements *= static_cast<double>(d);
    bytes += elements * static_cast<double>(size_of(node.dtype(port)));
  }
  return bytes;
}

}  // namespace

ConstantFolding::ConstantFolding(StepGraph& step, Evaluate evaluate)
    : step_(step), evaluate_(std::move(evaluate)), after_effect_(static_cast<size_t>(step.ids())) {}

ConstantFolding::Kind ConstantFolding::kind(const Node& node) {
  const auto [at, fresh] = kinds_.try_emplace(&node.op(), Kind::kPure);
  if (fresh) {
    const std::string& name = node.op().name();
    if (node.op().is_stateful()) at->second = Kind::kEffect;  // control flow is too
    else if (name == "Shape" || name == "Size" || name == "Rank") at->second = Kind::kOfShape;
  }
  return at->second;
}

bool ConstantFolding::visit(const Node& node) {
  const Kind of_node = kind(node);
  bool after_effect = of_node == Kind::kEffect;
  for (const Output& input : node.inputs()) {
    if (after_effect) break;
    const Output now = step_.now(input);
    after_effect = after_effect_[now.node->id()] && !step_.is_fed(now);
  }
  if (!after_effect && !node.control_inputs().empty()) {
    step_.for_each_control(node, [&](const Output& before) { after_effect |= after_effect_[before.node->id()]; });
  }
  if (static_cast<size_t>(node.id()) >= after_effect_.size()) after_effect_.resize(static_cast<size_t>(step_.ids()));
  after_effect_[node.id()] = after_effect;
  if (after_effect || node.inputs().empty() || node.num_outputs() == 0 || step_.is_fed(node) ||
      !node.control_inputs().empty())
    return false;
  if (of_node != Kind::kOfShape) return fold(node);
  const std::optional<Tensor> value = constant_value(node.out());
  return value && step_.shape(node.inputs()[0]).has_rank() && put(node, {*value});
}

bool ConstantFolding::fold(const Node& node) {
  std::vector<Tensor> inputs;
  double of_inputs = 0;
  for (const Output& input : node.inputs()) {
    const Tensor* value = step_.constant(input);
    if (!value) return false;
    inputs.push_back(*value);
    of_inputs += static_cast<double>(value->bytes());
  }
  const double bytes = std::max<double>(kMostBytes, of_inputs);
  if (const auto known = known_bytes(step_, node); known && *known > bytes) return false;
  auto values = evaluate_(node, inputs);
  if (!values) return false;
  double made = 0;
  for (const Tensor& value : *values) {
    if (value.dtype() == DType::kResource || value.dtype() == DType::kVariant) return false;
    made += static_cast<double>(value.bytes());
  }
  return made <= bytes && put(node, std::move(*values));
}

bool ConstantFolding::put(const Node& node, std::vector<Tensor> values) {
  std::vector<Output> by;
  for (Tensor& value : values) {
    auto constant = step_.add_constant(std::move(value), node);
    if (!constant.ok()) return false;
    by.push_back(*constant);
  }
  step_.replace(node, by);
  return true;
}

}  // namespace troupe
