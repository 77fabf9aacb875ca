// SPDX-License-Identifier: Apache-2.0
// Merging of common subexpressions.
#pragma once
#include <cstdint>
#include <vector>

#include "graph/step_graph.h"

namespace troupe {

/// Value numbering: finds for each node of a step an earlier one that computes the same, that is, one of the same op,
/// attributes, device, inputs and control inputs.
/// What stands for itself: stateful ops, nodes of which an output is fed, and all nodes without inputs but Const
/// (Placeholder, NoOp).
class CommonSubexpressions {
 public:
  /// `step` must outlive it.
  explicit CommonSubexpressions(const StepGraph& step);

  /// The earlier node, to be put in place of `node`; nullptr if there is none, and then `node` may be the earlier one
  /// for those to come. To be called for each node, inputs first, with what it found replaced at once.
  /// Time: constant, but that constants which look alike are compared bit by bit.
  const Node* find(const Node& node);

 private:
  struct Entry {
    uint32_t hash = 0;
    int32_t id = -1;
  };
  bool same_inputs(const Node& a, const Node& b) const;
  std::vector<Output> controls(const Node& node) const;
  void grow();

  const StepGraph& step_;
  std::vector<Entry> table_;  // open addressing; its size is a power of two
  size_t used_ = 0;
};

}  // namespace troupe
