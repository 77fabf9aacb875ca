// SPDX-License-Identifier: Apache-2.0
// Scopes: names, devices, control dependencies, and the first error.
#include "troupe/scope.h"

#include <algorithm>

namespace troupe {

Scope::Scope(Graph& graph) : graph_(&graph), state_(std::make_shared<State>()) {}

Scope Scope::scope(std::string_view name) const {
  Scope inner = *this;
  inner.name_.clear();
  if (name.empty()) return inner;
  const std::string path = prefix_ + std::string(name);
  int& suffix = state_->scopes[path];  // 0: this path is new; else the suffix to try next
  std::string unique = path;
  const bool taken = suffix > 0 || graph_->find(path);
  suffix = std::max(suffix, 1);
  if (taken) {
    while (state_->scopes.contains(unique = fmt::format("{}_{}", path, suffix)) || graph_->find(unique)) ++suffix;
    state_->scopes[unique] = 1;
  }
  inner.prefix_ = unique + "/";
  return inner;
}

Scope Scope::named(std::string_view name) const {
  Scope out = *this;
  out.name_ = name;
  return out;
}

Scope Scope::device(std::string_view device) const {
  Scope out = *this;
  out.device_ = device;
  return out;
}

Scope Scope::after(const std::vector<Output>& outputs) const {
  std::vector<const Node*> nodes;
  for (const Output& o : outputs) nodes.push_back(o.node);
  return after(nodes);
}

Scope Scope::after(const std::vector<const Node*>& nodes) const {
  Scope out = *this;
  for (const Node* n : nodes)
    if (n && std::ranges::find(out.control_inputs_, n) == out.control_inputs_.end()) out.control_inputs_.push_back(n);
  return out;
}

const Node* Scope::node(std::string_view op, std::vector<Output> inputs, Attrs attrs,
                        std::source_location where) const {
  if (!ok()) return nullptr;
  NodeSpec spec{std::string(op),   graph_->unique_name(prefix_ + (name_.empty() ? std::string(op) : name_)),
                std::move(inputs), std::move(attrs),
                control_inputs_,   device_};
  auto added = graph_->add(std::move(spec));
  if (added.ok()) return *added;
  fail(std::move(added.error()), where);
  return nullptr;
}

Output Scope::op(std::string_view op, std::vector<Output> inputs, Attrs attrs, std::source_location where) const {
  const Node* added = node(op, std::move(inputs), std::move(attrs), where);
  return added && added->num_outputs() > 0 ? added->out() : Output{};
}

Output Scope::constant(Tensor value, std::source_location where) const {
  const DType dtype = value.dtype();
  return op("Const", {}, {{"dtype", dtype}, {"value", std::move(value)}}, where);
}

void Scope::fail(Error error, std::source_location where) const {
  if (!ok()) return;
  const std::string_view file = where.file_name();
  error.message = fmt::format("{}:{}: {}", file.substr(file.rfind('/') + 1), where.line(), error.message);
  graph_->fail(error);
  state_->error = std::move(error);
}

}  // namespace troupe
