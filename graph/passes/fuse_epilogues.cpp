// SPDX-License-Identifier: Apache-2.0
// Looks from the last node to the first, so that an activation takes the bias before it.
#include "graph/passes/fuse_epilogues.h"

#include "graph/passes/readers.h"
#include "graph/passes/same_place.h"

namespace troupe {
namespace {

bool is_product(const std::string& op) { return op == "MatMul" || op == "Conv2D" || op == "DepthwiseConv2dNative"; }
bool is_activation(const std::string& op) {
  return op == "Relu" || op == "Relu6" || op == "Elu" || op == "Tanh" || op == "Sigmoid";
}

}  // namespace

EpilogueFusion::EpilogueFusion(StepGraph& step, const PassDevices& devices) : step_(step) {
  if (!step.ops().find("_FusedMatMul")) return;
  const Readers readers(step);
  const auto free = [&](const Node& n) { return n.control_inputs().empty() && !step.is_fed(n); };
  const auto first_input = [&](const Node& n, const Node& last) -> const Node* {
    const Node* from = step.now(n.inputs()[0]).node;
    return readers.one(*from) && free(*from) && same_place(*from, last) ? from : nullptr;
  };
  std::vector<bool> taken(static_cast<size_t>(step.ids()));
  const auto& nodes = step.nodes();
  for (size_t i = nodes.size(); i-- > 0;) {
    const Node& last = *nodes[i];
    if (taken[static_cast<size_t>(last.id())] || last.inputs().empty() || !free(last)) continue;
    Parts parts = {};
    const Node* at = &last;
    if (is_activation(at->op().name())) {
      parts.activation = at;
      at = first_input(*at, last);
    }
    if (at && at->op().name() == "BiasAdd") {
      parts.bias = at;
      at = first_input(*at, last);
    }
    if (!at || at == &last || !is_product(at->op().name())) continue;
    if (!devices.serves(last, "_Fused" + at->op().name())) continue;
    if (parts.bias && at->op().name() != "MatMul" && data_format(*parts.bias) != data_format(*at)) continue;
    parts.product = at;
    if (parts.bias) taken[static_cast<size_t>(parts.bias->id())] = true;
    found_.emplace(last.id(), parts);
  }
}

bool EpilogueFusion::visit(const Node& node) {
  const auto at = found_.find(node.id());
  if (at == found_.end()) return false;
  const auto& [product, bias, activation] = at->second;
  std::vector<Output> inputs = product->inputs();
  std::vector<std::string> ops;
  if (bias) {
    inputs.push_back(bias->inputs()[1]);
    ops.push_back(bias->op().name());
  }
  if (activation) ops.push_back(activation->op().name());
  Attrs attrs = product->attrs();
  attrs.set("num_args", static_cast<int64_t>(bias != nullptr));
  attrs.set("fused_ops", std::move(ops));
  const Output fused = step_.add_like(node, "_Fused" + product->op().name(), std::move(inputs), std::move(attrs));
  if (!fused) return false;
  step_.replace(node, {&fused, 1});
  return true;
}

}  // namespace troupe
