// SPDX-License-Identifier: Apache-2.0
// NodePlace: where nodes were added: the graph, the Scope's shared state, the branch or loop. What else an operator
// needs to put a node beside its operand (name scope, device, ...) the node itself tells.
#pragma once
#include <memory>

#include "graph/flow_context.h"

namespace troupe {

class NodePlace {
 public:
  Graph* graph;
  std::shared_ptr<void> scope_state;  // empty: not added by a Scope
  std::shared_ptr<FlowContext> flow;  // empty: outside of branches and loops
};

}  // namespace troupe
