// SPDX-License-Identifier: Apache-2.0
// StepGraph: the nodes that the steps of one signature (feeds, fetches, targets) need, and what passes put in place of
// some of them. The graph itself stays as it is: it is shared with other sessions, and may grow.
//
// Invariants:
//  1. nodes() are in topological order, inputs first.
//  2. A node of which an output is fed is never replaced; fetches, targets, inputs and control inputs of a node that
//     was follow what stands in its place.
//  3. Stateful nodes that the graph as written needs stay, also when nobody reads them any more.
//  4. What a node waits for, directly or through others, it waits for after all passes: an input or control input may
//     be left out only if it is a constant. So the order of effects stays.
#pragma once
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "troupe/graph.h"

namespace troupe {

class StepGraph {
 public:
  /// The nodes needed (graph/prune.h). The caller holds the graph's mutex during this call. Later the StepGraph reads
  /// nodes by their pointers alone, so the graph may grow meanwhile.
  StepGraph(const Graph& graph, std::span<const Output> fed, std::span<const Output> fetches,
            std::span<const Node* const> targets);

  // -- what a planner reads -------------------------------------------------------------------------------------------

  const std::vector<const Node*>& nodes() const { return nodes_; }
  /// Every node's id is below; those of made nodes are not below the graph's size.
  int ids() const { return static_cast<int>(by_id_.size()); }
  bool is_made(const Node& node) const { return node.id() >= first_made_; }
  /// Whether the node of that id was ever needed.
  bool has(int id) const { return by_id_[static_cast<size_t>(id)] != nullptr; }
  /// Of one that was.
  const Node& node(int id) const { return *by_id_[static_cast<size_t>(id)]; }
  /// A needed Merge whose loop was not closed, nullptr where there is none.
  const Node* open_merge() const { return open_merge_; }
  /// What stands for `output`: itself where nothing was put in its place.
  Output now(Output output) const {
    while (const uint32_t row = rows_[output.node->id()]) output = replaced_[row + output.port];
    return output;
  }
  /// Calls f(Output) for each node that `node` waits for by control inputs: with port -1, or with that of a Switch's
  /// output where only what lives with it is waited for.
  template <class F> void for_each_control(const Node& node, F&& f) const;
  /// The nodes that passes made; who plans a step keeps them as long as the plan.
  std::shared_ptr<const std::deque<Node>> made() const { return made_; }

  // -- what a pass asks and does --------------------------------------------------------------------------------------

  /// Whether any output of the node is fed, so that it must stay as it is.
  bool is_fed(const Node& node) const { return !fed_.empty() && has_feed_[node.id()]; }
  bool is_fed(Output output) const;
  const OpRegistry& ops() const { return ops_; }
  /// The value of `output` where a Const stands for it that is not fed and waits for nothing, else nullptr.
  const Tensor* constant(Output output) const;
  /// The shape of `output` as inferred; unknown where a value that shapes were inferred from is fed.
  PartialShape shape(Output output) const;
  /// Calls visit(node) for each node, inputs first; visit may add nodes and replace the one it is called with. A node
  /// it adds is visited next, and comes before the visited one; what was replaced is left out.
  template <class F> void sweep(F&& visit);
  /// Calls f(output) for what stands for each fetch and target; of a target that was not replaced, its first output.
  template <class F> void for_each_wanted(F&& f) const;
  /// A new node; its inputs must be nodes of this StepGraph. Only during a sweep. Errors: those of inference.
  Result<const Node*> add(NodeSpec spec);
  /// The first output of a new node of the name and device of `node`, in whose place it is to come; empty on an error.
  Output add_like(const Node& node, std::string op, std::vector<Output> inputs, Attrs attrs = {});
  /// The same for a Const, which is outside of every loop: for what reads constants alone.
  Result<Output> add_constant(Tensor value, const Node& node);
  /// The same for a Const that is read together with `beside`: in a step with loops it is in the loop of that.
  Result<Output> add_constant(Tensor value, const Node& node, Output beside);
  /// From now on by[i] stands for output i of `node`, which must have no feed.
  void replace(const Node& node, std::span<const Output> by);
  /// Leaves out the nodes that nothing needs any more.
  void drop_unneeded();

 private:
  /// Large graphs do not fit the cache: what a walk that is at nodes[i] and goes in direction `step` will look at soon
  /// is asked for now, the node itself, where its inputs are listed, and these.
  static void ask_ahead(const std::vector<const Node*>& nodes, size_t i, int step) {
    const auto ahead = [&](int distance) { return i + static_cast<size_t>(step * distance); };
    if (ahead(12) >= nodes.size()) return;
    __builtin_prefetch(nodes[ahead(12)]);
    __builtin_prefetch(&nodes[ahead(12)]->inputs());
    __builtin_prefetch(nodes[ahead(8)]->inputs().data());
    for (const Output& input : nodes[ahead(4)]->inputs()) __builtin_prefetch(input.node);
  }

  const OpRegistry& ops_;
  const int first_made_;  // the graph's size
  std::vector<const Node*> nodes_;
  std::vector<const Node*> by_id_;  // nullptr: not needed
  const Node* open_merge_ = nullptr;
  std::span<const Output> fetches_;
  std::vector<std::pair<int, int>> fed_;  // by id and port, sorted
  std::span<const Node* const> targets_;
  const OpDef* const const_;
  bool has_loops_ = false;
  bool shapes_hold_ = true;         // no value that shapes may have been inferred from is fed
  std::vector<bool> has_feed_;      // by id; empty when nothing is fed
  std::vector<uint32_t> rows_;      // by id: where its outputs begin in replaced_; 0: it was not replaced
  std::vector<Output> replaced_;    // element 0 is not used
  std::vector<const Node*> fresh_;  // added, not yet visited
  std::shared_ptr<std::deque<Node>> made_;
};

template <class F> void StepGraph::for_each_control(const Node& node, F&& f) const {
  for (const Node* before : node.control_inputs()) {
    if (rows_[before->id()] == 0) {
      f(Output{before, -1});
      continue;
    }
    for (int port = 0; port < before->num_outputs(); ++port)
      if (const Output output = now({before, port}); !is_fed(output))
        f(Output{output.node, output.node->op().control_flow() == ControlFlow::kSwitch ? output.port : -1});
  }
}

template <class F> void StepGraph::for_each_wanted(F&& f) const {
  const auto want = [&](Output o) {
    if (o = now(o); !is_fed(o)) f(o);
  };
  for (const Output& o : fetches_) want(o);
  for (const Node* n : targets_) {
    if (rows_[n->id()] == 0) f(Output{n, 0});
    else
      for (int port = 0; port < n->num_outputs(); ++port) want({n, port});
  }
}

template <class F> void StepGraph::sweep(F&& visit) {
  std::vector<const Node*> before;
  before.swap(nodes_);
  nodes_.reserve(before.size());
  std::vector<const Node*> waiting;  // the next to visit is the last
  for (size_t i = 0; i < before.size(); ++i) {
    ask_ahead(before, i, 1);
    waiting.push_back(before[i]);
    while (!waiting.empty()) {
      const Node* node = waiting.back();
      waiting.pop_back();
      visit(*node);
      if (!rows_[node->id()]) nodes_.push_back(node);
      waiting.insert(waiting.end(), fresh_.rbegin(), fresh_.rend());
      fresh_.clear();
    }
  }
}

}  // namespace troupe
