// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/keep_at_host.h"

#include <algorithm>

namespace troupe {
namespace {

bool is_logic(const Node& node) {
  const std::string& op = node.op().name();
  return op == "LogicalAnd" || op == "LogicalOr" || op == "LogicalNot";
}

}  // namespace

bool HostLogic::may_apply(const StepGraph& step) {
  return std::ranges::any_of(step.nodes(), [](const Node* node) { return is_logic(*node); });
}

bool HostLogic::visit(const Node& node) {
  if (!is_logic(node) || node.attrs().has(kAtHostAttr) || step_.is_fed(node) || !devices_.on_gpu(node)) return false;
  for (const Output& input : node.inputs())
    if (!devices_.at_host(step_.now(input))) return false;
  Attrs attrs = node.attrs();
  attrs.set(kAtHostAttr, DType::kBool);
  const auto marked =
      step_.add({node.op().name(), node.name(), node.inputs(), std::move(attrs), node.control_inputs(), node.device()});
  if (!marked.ok()) return false;
  const Output out = (*marked)->out();
  step_.replace(node, {&out, 1});
  return true;
}

}  // namespace troupe
