// SPDX-License-Identifier: Apache-2.0
// Recompute: which forward values a gradient computes again instead of keeping them, and the nodes that do.
//
// Invariants:
//  1. A copy computes what its original did: its op has no state, it runs in every step (no branch, no loop), has the
//     original's attributes and device, and reads what the original reads, or copies of that.
//  2. Every copy waits, itself or by what it reads, for the trigger of its scope: for the last of the scope's nodes,
//     the gradients that arrive there, and those that the walk has made before on its device. So it is not there
//     before the backward pass needs it, and at one time only one scope's copies are.
//  3. What other scopes or the nodes outside of all read in the backward pass is kept, and so is what is small.
// Source: Chen et al., Training Deep Nets with Sublinear Memory Cost, 2016; tf.recompute_grad.
#pragma once
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/gradient_walk.h"

namespace troupe {

/// The output that `output` computes again; itself if it is of no copy.
Output original(const Graph& graph, Output output);

class Recompute {
 public:
  /// Copies go to `scope`; `scopes` are those of GradientOptions::recompute. `loops`, of the whole graph, outlives it.
  Recompute(const Scope& scope, const Loops& loops, const std::vector<std::string>& scopes);

  /// Tells of a node that is to be differentiated. Each is told of, before the walk begins.
  void add(const Node& node) { region_of(node); }
  /// An output that is kept in any case.
  void keep(const Output& output) { kept_.insert(output); }
  /// Error: kNotFound for the first of the scopes that no node added is in.
  Status check() const;
  /// The walk has come to `node`, with its gradients complete.
  void enter(const Node& node, const std::vector<Output>& dys);
  /// It has made `dx`, a contribution of `node` to the gradient by `x`.
  void leave(const Node& node, const Output& x, const Output& dx);
  /// What the gradient of `reader` takes for `output`, which is read or made by `reader`.
  Output value(const Node& reader, Output output);

 private:
  /// A scope as far as the walk has come.
  struct Region {
    std::string name;                   // "replica_0/block_1"
    const Node* end = nullptr;          // the first of its nodes that the walk came to
    std::vector<const Node*> arriving;  // gradients
    const Node* trigger = nullptr;      // once there is a copy
  };
  /// Index of the region that the node is in, -1: none.
  int region_of(const Node& node);
  int find_region(std::string_view name);
  /// Whether a copy of the node would compute the same.
  bool can_run_again(const Node& node) const;
  bool copied(const Output& output, int region);
  const Node* copy(const Node& node, int region);
  const Node* trigger(Region& region);

  const Scope scope_;
  const Loops& loops_;
  std::vector<std::string> scopes_;
  std::vector<bool> met_;  // of scopes_: a node is in it
  std::vector<Region> regions_;
  std::unordered_map<const Node*, int> numbers_;
  std::unordered_map<const Node*, const Node*> copies_;  // by original
  OutputSet kept_;                                       // read from outside their scopes
  std::unordered_set<const Node*> passed_;               // by the walk
  /// Gradients by nodes that were not passed when they were made, (the node, the gradient's): those by variables, which
  /// a device may put off, with all they read. No trigger waits for them yet.
  std::vector<std::pair<const Node*, const Node*>> open_;
};

}  // namespace troupe
