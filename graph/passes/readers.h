// SPDX-License-Identifier: Apache-2.0
// The readers of each node, for passes that put a node into its reader.
#pragma once
#include <vector>

#include "graph/step_graph.h"

namespace troupe {

/// How often the nodes of a step are read by inputs, control inputs, fetches and targets, when it was made.
class Readers {
 public:
  explicit Readers(const StepGraph& step)
      : count_(static_cast<size_t>(step.ids())), others_(static_cast<size_t>(step.ids())) {
    const auto read = [&](Output o) {
      ++count_[static_cast<size_t>(o.node->id())];
      if (o.port > 0) ++others_[static_cast<size_t>(o.node->id())];
    };
    step.for_each_wanted(read);
    for (const Node* node : step.nodes()) {
      for (const Output& input : node->inputs()) read(step.now(input));
      step.for_each_control(*node, [&](const Output& before) { count_[static_cast<size_t>(before.node->id())] += 2; });
    }
  }
  /// Whether the node was there then, and one input reads it, or one fetch, and nobody waits for it beside that.
  bool one(const Node& node) const { return known(node) && count_[static_cast<size_t>(node.id())] == 1; }
  /// How many inputs and fetches read it; more where somebody waits for it beside that, 0 if it was not there then.
  uint32_t reads(const Node& node) const { return known(node) ? count_[static_cast<size_t>(node.id())] : 0; }
  /// Whether the node was there then, and of its outputs the first alone is read.
  bool first_output_only(const Node& node) const { return known(node) && others_[static_cast<size_t>(node.id())] == 0; }
  /// Whether the node was there then, and one input reads its first output, or one fetch, and nobody waits for the node
  /// beside that; the others may have any readers.
  bool one_of_first_output(const Node& node) const {
    return known(node) && count_[static_cast<size_t>(node.id())] == others_[static_cast<size_t>(node.id())] + 1;
  }

 private:
  bool known(const Node& node) const { return static_cast<size_t>(node.id()) < count_.size(); }

  std::vector<uint32_t> count_;   // by id
  std::vector<uint32_t> others_;  // by id: of these, reads of outputs beside the first
};

}  // namespace troupe
