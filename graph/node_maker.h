// SPDX-License-Identifier: Apache-2.0
// Making of nodes: what Graph::add and the passes over a step have in common.
#pragma once
#include "troupe/graph.h"

namespace troupe {

/// Fills in nodes: the one friend of Node.
class NodeMaker {
 public:
  /// Makes `node` what `spec` says: fills in attributes, checks the inputs' types, infers output types and shapes.
  /// Whether the name is free and the inputs are of the right graph is the caller's to check.
  /// Errors (`node` is not to be used, `spec` keeps its name): kInvalidArgument without op and node.
  /// Input `open_input` of a loop's Merge, if there is one (>= 0), comes later: for now it reads what input 0 reads.
  static Status make(const OpDef& op, NodeSpec&& spec, int id, Node& node, int open_input = -1);
  /// Gives `merge` its open input, after checking dtype and shape: see Graph::close_loop.
  static Status close_loop(Node& merge, Output next);
  /// Where it was added, and as which node of its graph.
  static void set_place(Node& node, const NodePlace& place, int id) {
    node.place_ = &place;
    node.id_ = id;
  }
};

}  // namespace troupe
