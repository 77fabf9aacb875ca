// SPDX-License-Identifier: Apache-2.0
#include "graph/flow_context.h"

#include <algorithm>

#include "graph/frames.h"
#include "graph/node_place.h"

namespace troupe {

void FlowContext::adopt(std::vector<Output>& inputs, std::vector<const Node*>& control_inputs) {
  for (Output& in : inputs)
    if (in) in = inside(in);
  std::erase_if(control_inputs, [&](const Node* n) { return n && !holds(n); });
  // What enters a loop for all iterations is there in the one that does not go on too.
  const bool waits = std::ranges::all_of(inputs, [](const Output& in) { return in && is_constant_enter(*in.node); });
  if (waits && control_inputs.empty() && pivot_) control_inputs.push_back(pivot_);
}

bool FlowContext::holds(const Node* node) const {
  const FlowContext* flow = node->place() ? node->place()->flow.get() : nullptr;
  return (flow && flow->is_in(this)) || nodes_.contains(node);
}

Output FlowContext::inside(Output outside) {
  if (holds(outside.node)) return outside;
  if (ended()) return {};
  const auto [at, fresh] = brought_.try_emplace({outside.node, outside.port});
  if (fresh) {
    if (const Output in = bring_in_(outside)) {
      at->second = in;
      add(in.node);
    }
  }
  return at->second;
}

void FlowContext::add(const Node* node) {
  nodes_.insert(node);
  // To the contexts around, what is in here is inside too.
  if (outer_) outer_->add(node);
}

}  // namespace troupe
