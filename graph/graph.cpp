// SPDX-License-Identifier: Apache-2.0
// Growth of a graph, names, look-up.
#include "troupe/graph.h"

#include <algorithm>
#include <charconv>

#include "graph/near_names.h"
#include "graph/node_maker.h"
#include "graph/node_place.h"

namespace troupe {
namespace {

/// TensorFlow's rule for names: letters, digits and _ . - / \ >, not one of - / \ > first.
bool valid_name(std::string_view name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  };
  const auto inner = [&](char c) { return plain(c) || c == '-' || c == '/' || c == '\\' || c == '>'; };
  return !name.empty() && plain(name[0]) && std::ranges::all_of(name, inner);
}

Error name_taken() { return make_error(Code::kAlreadyExists, "there is a node of this name already"); }

}  // namespace

std::string Output::name() const { return node ? fmt::format("{}:{}", node->name(), port) : "<none>"; }

const PartialShape& Node::no_shape() {
  static const PartialShape unknown = PartialShape::unknown();
  return unknown;
}

const NodePlace& Graph::add_place(std::shared_ptr<void> scope_state, std::shared_ptr<FlowContext> flow) {
  NodePlace place{this, std::move(scope_state), std::move(flow),
                  places_.empty() ? std::make_shared<std::vector<int>>() : places_.front()->depths};
  return *places_.emplace_back(std::make_shared<const NodePlace>(std::move(place)));
}

Result<const Node*> Graph::add(NodeSpec spec) {
  if (places_.empty()) add_place(nullptr, nullptr);
  // Operators on a node that no scope added belong to the first that was there.
  return add(std::move(spec), *places_.front());
}

Result<const Node*> Graph::add(NodeSpec spec, const NodePlace& place) {
  std::unique_lock lock(mutex_);
  const auto located = [&](Error error) {
    error.op = spec.op;
    error.node = spec.name;
    return error;
  };
  const OpDef* op = ops_->find(spec.op);
  if (!op) {
    NearNames near(spec.op);
    for (const auto& [name, def] : ops_->all()) near.offer(name);
    return located(make_error(Code::kNotFound, "unknown op{}", near.hint()));
  }
  if (!valid_name(spec.name)) return located(invalid_argument("not a name for a node"));
  if (find(spec.name)) return located(name_taken());

  int open_input = -1;
  if (op->control_flow() == ControlFlow::kMerge && !spec.inputs.empty() && spec.inputs[0].node) {
    const auto empty = std::ranges::find(spec.inputs, Output());
    if (empty != spec.inputs.end()) {
      open_input = static_cast<int>(empty - spec.inputs.begin());
      *empty = spec.inputs[0];
    }
  }
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    const Output& input = spec.inputs[i];
    if (!owns(input.node))
      return located(invalid_argument("input {} is {}", i, input.node ? "of another graph" : "empty"));
    if (input.port < 0 || input.port >= input.node->num_outputs())
      return located(invalid_argument("input {} is {}, but {} '{}' has {} outputs", i, input.name(),
                                      input.node->op().name(), input.node->name(), input.node->num_outputs()));
  }
  for (const Node* n : spec.control_inputs)
    if (!owns(n)) return located(invalid_argument("a control input is {}", n ? "of another graph" : "empty"));

  Node made;
  lock.unlock();  // the shape function is the user's
  if (Status status = NodeMaker::make(*op, std::move(spec), 0, made, open_input); !status)
    return located(std::move(status.error()));
  lock.lock();
  if (find(made.name())) {  // the shape function has added nodes
    spec.name = made.name();
    return located(name_taken());
  }
  NodeMaker::set_place(made, place, size());
  Node& node = nodes_.emplace_back(std::move(made));
  by_name_.emplace(node.name(), &node);
  place.add_depth(node);
  return &node;
}

Status Graph::close_loop(const Node& merge, Output next) {
  const std::lock_guard lock(mutex_);
  const auto located = [&](Error error) {
    error.op = merge.op().name();
    error.node = merge.name();
    return error;
  };
  if (!owns(&merge) || !merge.open())
    return located(invalid_argument("is not the Merge of a loop still to be closed in this graph"));
  if (!owns(next.node) || next.node->op().control_flow() != ControlFlow::kNextIteration || next.port != 0)
    return located(invalid_argument("a loop is closed by a NextIteration of its graph, not by {}", next.name()));
  Status closed = NodeMaker::close_loop(nodes_[merge.id()], next);
  return closed.ok() ? closed : located(closed.error());
}

const Node* Graph::find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : at->second;
}

Result<Output> Graph::output(std::string_view name) const {
  const bool control = name.starts_with('^');
  std::string_view base = name.substr(control);
  int port = 0;
  if (const size_t colon = base.rfind(':'); colon != std::string_view::npos && !control) {
    const std::string_view digits = base.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
    if (error != std::errc() || end != digits.data() + digits.size() || port < 0)
      return invalid_argument("'{}' is not of the form name:port", name);
    base = base.substr(0, colon);
  }
  const Node* node = find(base);
  if (!node) {
    NearNames near(base);
    for (const Node& other : nodes_) near.offer(other.name());
    return make_error(Code::kNotFound, "no node '{}'{}", base, near.hint());
  }
  const bool bare = base.size() == name.size() || control;  // a node without outputs may be named as a target
  if (port >= node->num_outputs() && !bare)
    return Error{Code::kInvalidArgument, fmt::format("has {} outputs, none of them {}", node->num_outputs(), port),
                 node->op().name(), node->name()};
  return Output{node, port};
}

std::string Graph::unique_name(std::string_view base) const {
  std::string name(base);
  if (!find(name)) return name;
  int& suffix = next_suffix_.try_emplace(name, 1).first->second;
  while (find(name = fmt::format("{}_{}", base, suffix))) ++suffix;
  return name;
}

}  // namespace troupe
