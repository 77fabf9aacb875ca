// SPDX-License-Identifier: Apache-2.0
// NodePlace: where nodes were added: the graph, the Scope's shared state, the branch or loop, and how far along the
// nodes of the graph are. What else an operator needs to put a node beside its operand (name scope, device, ...) the
// node itself tells.
#pragma once
#include <algorithm>
#include <memory>
#include <vector>

#include "graph/flow_context.h"

namespace troupe {

class NodePlace {
 public:
  Graph* graph;
  std::shared_ptr<void> scope_state;  // empty: not added by a Scope
  std::shared_ptr<FlowContext> flow;  // empty: outside of branches and loops
  /// By node id: the nodes on the longest way to it. 0 of a node without inputs and of one that reads handles alone, as
  /// the value of a variable; of the Merge of a loop as before the loop was closed. All places of a graph share it, and
  /// the thread that adds nodes alone uses it.
  std::shared_ptr<std::vector<int>> depths;

  void add_depth(const Node& node) const {
    int depth = 0;
    for (const Output& in : node.inputs())
      if (in.dtype() != DType::kResource) depth = std::max(depth, (*depths)[static_cast<size_t>(in.node->id())] + 1);
    depths->push_back(depth);
  }
  static int depth(const Node& node) { return (*node.place()->depths)[static_cast<size_t>(node.id())]; }
};

}  // namespace troupe
