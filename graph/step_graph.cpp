// SPDX-License-Identifier: Apache-2.0
// Replacement of nodes, and what is needed after it.
#include "graph/step_graph.h"

#include <algorithm>

#include "base/check.h"
#include "graph/constant_value.h"
#include "graph/node_maker.h"
#include "graph/prune.h"
#include "troupe/transfers.h"

namespace troupe {

StepGraph::StepGraph(const Graph& graph, std::span<const Output> fed, std::span<const Output> fetches,
                     std::span<const Node* const> targets)
    : ops_(graph.ops()), first_made_(graph.size()), nodes_(needed_nodes(graph, fed, fetches, targets)),
      by_id_(static_cast<size_t>(graph.size())), fetches_(fetches), targets_(targets), const_(ops_.find("Const")),
      rows_(static_cast<size_t>(graph.size())), replaced_(1), made_(std::make_shared<std::deque<Node>>()) {
  for (const Node* node : nodes_) {
    by_id_[static_cast<size_t>(node->id())] = node;
    if (node->open()) open_merge_ = node;
    has_loops_ = has_loops_ || node->op().control_flow() == ControlFlow::kEnter;
  }
  if (fed.empty()) return;
  has_feed_.resize(static_cast<size_t>(first_made_));
  for (const Output& f : fed) {
    fed_.emplace_back(f.node->id(), f.port);
    has_feed_[f.node->id()] = true;
    shapes_hold_ = shapes_hold_ && !is_partly_known(f);
  }
  std::ranges::sort(fed_);
}

bool StepGraph::is_fed(Output output) const {
  return is_fed(*output.node) && std::ranges::binary_search(fed_, std::pair(output.node->id(), output.port));
}

const Tensor* StepGraph::constant(Output output) const {
  output = now(output);
  if (&output.node->op() != const_ || is_fed(output) || !output.node->control_inputs().empty()) return nullptr;
  return output.node->attrs().get<Tensor>("value");
}

PartialShape StepGraph::shape(Output output) const { return shapes_hold_ ? now(output).shape() : PartialShape(); }

Output StepGraph::add_like(const Node& node, std::string op, std::vector<Output> inputs, Attrs attrs) {
  if (const AttrValue* transfers = node.attrs().find(kTransferAttr)) attrs.set(kTransferAttr, *transfers);
  auto added = add({std::move(op), node.name(), std::move(inputs), std::move(attrs), {}, node.device()});
  return added.ok() ? (*added)->out() : Output();
}

Result<Output> StepGraph::add_constant(Tensor value, const Node& node) {
  return add_constant(std::move(value), node, Output());
}

Result<Output> StepGraph::add_constant(Tensor value, const Node& node, Output beside) {
  const DType dtype = value.dtype();
  std::vector<const Node*> after;
  if (beside) beside = now(beside);
  if (has_loops_ && beside && !is_fed(beside) && !constant(beside)) after.push_back(beside.node);
  TROUPE_ASSIGN(const Node* added, add({"Const",
                                        node.name(),
                                        {},
                                        {{"value", std::move(value)}, {"dtype", dtype}},
                                        std::move(after),
                                        node.device()}));
  return added->out();
}

Result<const Node*> StepGraph::add(NodeSpec spec) {
  const OpDef* op = ops_.find(spec.op);
  if (!op) return make_error(Code::kNotFound, "no op {} for a pass over '{}'", spec.op, spec.name);
  for (Output& input : spec.inputs) input = now(input);
  Node& node = made_->emplace_back();
  if (Status status = NodeMaker::make(*op, std::move(spec), ids(), node); !status) {
    made_->pop_back();
    return std::move(status.error());
  }
  by_id_.push_back(&node);
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
  if (replaced_.size() == 1) return;
  // From the last node to the first, as in graph/prune.cpp, and with the same care for back edges.
  enum : uint8_t { kUnseen, kNeeded, kPassed };
  std::vector<uint8_t> seen(static_cast<size_t>(ids()));  // by id
  std::vector<const Node*> passed;
  const auto want_node = [&](const Node& n) {
    if (seen[n.id()] == kPassed) passed.push_back(&n);
    seen[n.id()] = kNeeded;
  };
  const auto want = [&](Output o) {
    o = now(o);
    if (!is_fed(o)) want_node(*o.node);
  };
  const auto look = [&](const Node& n) {
    for (const Output& input : n.inputs()) want(input);
    for_each_control(n, [&](const Output& before) { want_node(*before.node); });
  };
  for_each_wanted([&](Output o) { want_node(*o.node); });
  for (size_t i = nodes_.size(); i-- > 0;) {
    ask_ahead(nodes_, i, -1);
    const Node& n = *nodes_[i];
    if (seen[n.id()] == kUnseen && !n.op().is_stateful()) {
      seen[n.id()] = kPassed;
      continue;
    }
    want_node(n);
    look(n);
    while (!passed.empty()) {
      const Node& back = *passed.back();
      passed.pop_back();
      look(back);
    }
  }
  std::erase_if(nodes_, [&](const Node* n) { return seen[n->id()] != kNeeded; });
}

}  // namespace troupe
