// SPDX-License-Identifier: Apache-2.0
// Replacement of nodes, and what is needed after it.
#include "graph/step_graph.h"

#include <algorithm>

#include "base/check.h"
#include "graph/node_maker.h"
#include "graph/prune.h"

namespace troupe {

StepGraph::StepGraph(const Graph& graph, std::span<const Output> fed, std::span<const Output> fetches,
                     std::span<const Node* const> targets)
    : graph_(graph), nodes_(needed_nodes(graph, fed, fetches, targets)), fed_(fed), fetches_(fetches),
      targets_(targets), rows_(static_cast<size_t>(graph.size())), replaced_(1),
      made_(std::make_shared<std::deque<Node>>()) {
  if (fed_.empty()) return;
  has_feed_.resize(static_cast<size_t>(graph.size()));
  for (const Output& f : fed_) has_feed_[f.node->id()] = true;
}

bool StepGraph::is_fed(Output output) const {
  return is_fed(*output.node) && std::ranges::find(fed_, output) != fed_.end();
}

Result<const Node*> StepGraph::add(NodeSpec spec) {
  const OpDef* op = graph_.ops().find(spec.op);
  if (!op) return make_error(Code::kNotFound, "no op {} for a pass over '{}'", spec.op, spec.name);
  Node& node = made_->emplace_back();
  if (Status status = NodeMaker::make(*op, std::move(spec), ids() - 1, node); !status) {
    made_->pop_back();
    return std::move(status.error());
  }
  rows_.push_back(0);
  if (!has_feed_.empty()) has_feed_.push_back(false);
  fresh_.push_back(&node);
  return &node;
}

void StepGraph::replace(const Node& node, std::span<const Output> by) {
  TROUPE_CHECK(!is_fed(node) && static_cast<int>(by.size()) == node.num_outputs() && !by.empty());
  rows_[node.id()] = static_cast<uint32_t>(replaced_.size());
  replaced_.insert(replaced_.end(), by.begin(), by.end());
}

void StepGraph::drop_unneeded() {
  std::vector<bool> unwanted(static_cast<size_t>(ids()));  // nodes of the step that nothing was seen to need
  for (const Node* n : nodes_) unwanted[n->id()] = true;
  std::vector<const Node*> waiting;  // needed, their inputs not yet looked at
  const auto want_node = [&](const Node& n) {
    if (!unwanted[n.id()]) return;
    unwanted[n.id()] = false;
    waiting.push_back(&n);
  };
  const auto want = [&](Output o) {
    o = now(o);
    if (!is_fed(o)) want_node(*o.node);
  };
  for (const Output& o : fetches_) want(o);
  for (const Node* n : targets_) {
    if (rows_[n->id()] == 0) want_node(*n);
    else
      for (int port = 0; port < n->num_outputs(); ++port) want({n, port});
  }
  for (const Node* n : nodes_)
    if (n->op().is_stateful()) want_node(*n);
  while (!waiting.empty()) {
    const Node& n = *waiting.back();
    waiting.pop_back();
    for (const Output& input : n.inputs()) want(input);
    for_each_control(n, want_node);
  }
  std::erase_if(nodes_, [&](const Node* n) { return unwanted[n->id()]; });
}

}  // namespace troupe
