// SPDX-License-Identifier: Apache-2.0
// Scopes: names, devices, control dependencies, and the first error.
#include "troupe/scope.h"

#include <algorithm>
#include <unordered_set>

#include "base/device_name.h"
#include "graph/node_place.h"

namespace troupe {
namespace {

/// What a device's name tells of its task; nothing of one that cannot be read, which planning refuses.
DeviceName task_part(std::string_view device) {
  const auto name = DeviceName::parse(device);
  if (!name.ok()) return {};
  DeviceName task{.job = name->job, .replica = name->replica, .task = name->task};
  if (task.task && !task.replica) task.replica = 0;
  return task;
}

/// What a node in the branch or loop of `scope` waits for in place of `before`, from around it: an edge of control
/// cannot lead in, so a value does.
const Node* brought_in(const Scope& scope, const Node* before) {
  FlowContext& flow = *scope.flow();
  if (flow.ended() || flow.holds(before) || !scope.graph().owns(before)) return before;
  const std::shared_ptr<FlowContext> around = before->place() ? before->place()->flow : nullptr;
  if (!flow.is_in(around.get())) return before;  // of a branch or loop beside it: adopt() takes it out
  const Node*& there = flow.stand_in(before);
  if (there) return there;
  const Output token = scope.within(around).named("after").after(std::vector<const Node*>{before}).constant(false);
  return there = scope.within(scope.flow()).named("after").node("Identity", {token});
}

}  // namespace

Scope::Scope(Graph& graph) : graph_(&graph), state_(std::make_shared<State>()) {}

std::optional<Scope> Scope::beside(const Node& node) {
  const NodePlace* place = node.place();
  if (!place) return {};
  Scope out(*place->graph);
  if (place->scope_state) out.state_ = std::static_pointer_cast<State>(place->scope_state);
  out.flow_ = place->flow;
  out.prefix_ = node.name().substr(0, node.name().rfind('/') + 1);
  out.device_ = node.device();
  if (const auto* classes = node.attrs().get<std::vector<std::string>>("_class")) out.colocated_ = *classes;
  out.compression_ = transfer_compression(node);
  return out;
}

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

Scope Scope::in_task_of(std::string_view device) const {
  const DeviceName task = task_part(device), own = task_part(device_);
  const auto both = DeviceName::merge(task, own);
  Scope out = *this;
  if (!both.ok()) {
    out.device_ = device;
    out.colocated_.clear();  // with nodes of the other task
  } else if (*both != own) {
    const auto name = DeviceName::parse(device_);
    if (name.ok()) out.device_ = DeviceName::override(*both, *name).str();
  }
  return out;
}

std::string Scope::task_name() const { return task_part(device_).str(); }

Scope Scope::colocate(const Node* node, std::source_location where) const {
  Scope out = *this;
  if (!node) return out;
  if (!graph_->owns(node)) fail(invalid_argument("colocate: the node is of another graph"), where);
  out.device_.clear();
  out.colocated_.push_back("loc:@" + node->name());
  return out;
}

Scope Scope::compress_transfers(TransferCompression compression) const {
  Scope out = *this;
  out.compression_ = compression;
  return out;
}

Scope Scope::after(const std::vector<Output>& outputs) const {
  std::vector<const Node*> nodes;
  for (const Output& o : outputs) nodes.push_back(o.node);
  return after(nodes);
}

Scope Scope::after(const std::vector<const Node*>& nodes) const {
  Scope out = *this;
  std::unordered_set<const Node*> known(out.control_inputs_.begin(), out.control_inputs_.end());
  for (const Node* n : nodes)
    if (n && known.insert(n).second) out.control_inputs_.push_back(n);
  return out;
}

Scope Scope::told_at(std::source_location where) const {
  Scope out = *this;
  if (!out.told_at_) out.told_at_ = where;
  return out;
}

Scope Scope::told_at_each_line() const {
  Scope out = *this;
  out.told_at_.reset();
  return out;
}

const Node* Scope::node(std::string_view op, std::vector<Output> inputs, Attrs attrs,
                        std::source_location where) const {
  if (!ok()) return nullptr;
  NodeSpec spec{std::string(op), {}, std::move(inputs), std::move(attrs)};
  spec.control_inputs = control_inputs_;
  if (flow_) {
    for (const Node*& before : spec.control_inputs) before = brought_in(*this, before);
    if (!ok()) return nullptr;
    const auto ours = [&](const Node* before) { return graph_->owns(before); };
    // Graph::add() refuses a node of another graph.
    if (std::ranges::all_of(spec.control_inputs, ours)) flow_->adopt(spec.inputs, spec.control_inputs);
  }
  spec.name = graph_->unique_name(prefix_ + (name_.empty() ? spec.op : name_));
  return add(std::move(spec), where);
}

const Node* Scope::open_merge(Output entered, const PartialShape& shape, std::source_location where) const {
  if (!ok()) return nullptr;
  NodeSpec spec{"Merge", graph_->unique_name(prefix_ + "merge"), {entered, Output()}};
  spec.open_shape = shape;
  return add(std::move(spec), where);
}

const Node* Scope::add(NodeSpec spec, std::source_location where) const {
  spec.device = device_;
  if (!colocated_.empty() && !spec.attrs.has("_class")) spec.attrs.set("_class", colocated_);
  if (compression_) spec.attrs.set(kTransferAttr, std::string(to_string(*compression_)));
  auto added = graph_->add(std::move(spec), place());
  if (!added.ok()) {
    fail(std::move(added.error()), where);
    return nullptr;
  }
  return *added;
}

const NodePlace& Scope::place() const {
  const NodePlace*& at = state_->places[flow_.get()];
  if (!at) at = &graph_->add_place(state_, flow_);
  return *at;
}

Scope Scope::within(std::shared_ptr<FlowContext> flow) const {
  Scope out = *this;
  out.control_inputs_.clear();
  out.flow_ = std::move(flow);
  return out;
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
  if (told_at_) where = *told_at_;
  const std::string_view file = where.file_name();
  error.message = fmt::format("{}:{}: {}", file.substr(file.rfind('/') + 1), where.line(), error.message);
  graph_->fail(error);
  state_->error = std::move(error);
}

}  // namespace troupe
