// SPDX-License-Identifier: Apache-2.0
#include "train/copier.h"

namespace troupe::nn {

Status Copier::copy(const Node& node, const std::string& device, const std::vector<const Node*>& after) {
  NodeSpec spec{node.op().name(), to_.unique_name(prefix_ + node.name()), {}, node.attrs(), after, device, {}};
  if (const auto* original = node.attrs().get<std::string>("_recomputes"))
    spec.attrs.set("_recomputes", prefix_ + *original);
  for (const Output& in : node.inputs()) {
    if (in.node->id() > node.id()) {
      spec.open_shape = in.shape();
      spec.inputs.push_back({});
      continue;
    }
    spec.inputs.push_back(now(in));
    if (!spec.inputs.back())
      return make_error(Code::kInternal, "'{}' was copied before '{}', which it reads", node.name(), in.name());
  }
  for (const Node* before : node.control_inputs())
    if (const Node* copied = find(*before)) spec.control_inputs.push_back(copied);
  TROUPE_ASSIGN(nodes_[&node], to_.add(std::move(spec)));
  for (const Output& in : node.inputs())
    if (in.node->id() > node.id()) open_.emplace_back(nodes_[&node], in);
  return {};
}

}  // namespace troupe::nn
