// SPDX-License-Identifier: Apache-2.0
#include "graph/recompute.h"

#include <algorithm>

namespace troupe {
namespace {

/// Of a copy, the name of its original.
constexpr const char* kAttr = "_recomputes";
/// What is at most so large is kept: statistics of a batch cost little memory, but a pass over it.
constexpr int64_t kSmallBytes = 16 << 10;

bool is_small(const Output& output) {
  int64_t bytes = static_cast<int64_t>(size_of(output.dtype()));
  if (!output.shape().fully_known()) return false;
  for (const int64_t size : output.shape().dims()) {
    if (size > kSmallBytes) return false;
    bytes *= size;
    if (bytes > kSmallBytes) return false;
  }
  return true;
}

bool in_scope(std::string_view path, std::string_view scope) {
  return path == scope || (path.ends_with(scope) && path[path.size() - scope.size() - 1] == '/');
}

}  // namespace

Output original(const Graph& graph, Output output) {
  for (;;) {
    const Node& copy = *output.node;
    const auto* name = copy.attrs().get<std::string>(kAttr);
    const Node* node = name ? graph.find(*name) : nullptr;
    // A file may claim anything.
    if (!node || node->id() >= copy.id() || &node->op() != &copy.op() || node->num_outputs() != copy.num_outputs())
      return output;
    output = node->out(output.port);
  }
}

Recompute::Recompute(const Scope& scope, const Loops& loops, const std::vector<std::string>& scopes)
    : scope_(scope), loops_(loops), scopes_(scopes), met_(scopes.size()) {
  for (std::string& name : scopes_)
    if (name.ends_with('/')) name.pop_back();
}

Status Recompute::check() const {
  for (size_t i = 0; i < scopes_.size(); ++i)
    if (!met_[i])
      return make_error(Code::kNotFound, "gradients: recompute '{}': no node between ys and xs is in such a scope",
                        scopes_[i]);
  return {};
}

int Recompute::region_of(const Node& node) {
  const auto [at, fresh] = numbers_.try_emplace(&node, -1);
  if (fresh) at->second = find_region(node.name());
  return at->second;
}

/// Of the scopes around a node the outermost that was asked for.
int Recompute::find_region(std::string_view name) {
  std::string_view found;
  for (size_t end = name.find('/'); end != name.npos; end = name.find('/', end + 1)) {
    const std::string_view path = name.substr(0, end);
    for (size_t i = 0; i < scopes_.size(); ++i) {
      if (!in_scope(path, scopes_[i])) continue;
      met_[i] = true;
      if (found.empty()) found = path;
    }
  }
  if (found.empty()) return -1;
  const auto index = std::ranges::find(regions_, found, &Region::name) - regions_.begin();
  if (index == std::ssize(regions_)) regions_.emplace_back().name = found;
  return static_cast<int>(index);
}

bool Recompute::can_run_again(const Node& node) const {
  const OpDef& op = node.op();
  if (node.inputs().empty() || op.is_stateful() || op.control_flow() != ControlFlow::kNone) return false;
  if (op.name() == "PlaceholderWithDefault") return false;  // it may be fed
  for (const Output& in : node.inputs())
    if (is_object(in.dtype())) return false;
  for (int i = 0; i < node.num_outputs(); ++i)
    if (is_object(node.dtype(i))) return false;
  return loops_.frame_of(node.out()) == 0 && !loops_.in_branch(node);
}

void Recompute::enter(const Node& node, const std::vector<Output>& dys) {
  passed_.insert(&node);
  const int region = region_of(node);
  if (region < 0 || regions_[region].end || loops_.in_branch(node)) return;
  regions_[region].end = &node;
  for (const Output& dy : dys)
    if (dy && !dy.node->inputs().empty()) regions_[region].arriving.push_back(dy.node);
}

void Recompute::leave(const Node& node, const Output& x, const Output& dx) {
  // What may not run in a step is not waited for.
  if (loops_.in_branch(node) || loops_.in_branch(*x.node) || dx.node->inputs().empty()) return;
  open_.emplace_back(x.node, dx.node);
}

Output Recompute::value(const Node& reader, Output output) {
  const int region = region_of(*output.node);
  if (region < 0) return output;
  if (region != region_of(reader) || loops_.in_branch(reader)) {
    kept_.insert(output);
    return output;
  }
  if (!regions_[region].end || !copied(output, region)) return output;
  const Node* again = copy(*output.node, region);
  return again ? again->out(output.port) : output;
}

/// Whether `output`, as `region` sees it, is one of its copies'.
bool Recompute::copied(const Output& output, int region) {
  if (region_of(*output.node) == region)
    return can_run_again(*output.node) && !kept_.contains(output) && !is_small(output);
  kept_.insert(output);
  return false;
}

const Node* Recompute::copy(const Node& node, int region) {
  if (const auto at = copies_.find(&node); at != copies_.end()) return at->second;
  std::vector<const Node*> wanted = {&node};
  std::unordered_set<const Node*> seen = {&node};
  for (size_t i = 0; i < wanted.size(); ++i)
    for (const Output& in : wanted[i]->inputs())
      if (copied(in, region) && !copies_.contains(in.node) && seen.insert(in.node).second) wanted.push_back(in.node);
  std::ranges::sort(wanted, {}, &Node::id);  // inputs first
  const Node* made = nullptr;
  for (const Node* each : wanted) {
    std::vector<Output> inputs;
    bool waits = false;
    for (const Output& in : each->inputs()) {
      const bool again = copied(in, region);
      waits |= again;
      inputs.push_back(again ? copies_.at(in.node)->out(in.port) : in);
    }
    Attrs attrs = each->attrs();
    attrs.set(kAttr, each->name());
    Scope scope = scope_.device(each->device()).named(each->name());
    if (!waits) scope = scope.after(std::vector<const Node*>{trigger(regions_[region])});
    made = scope.node(each->op().name(), std::move(inputs), std::move(attrs));
    if (!made) return nullptr;  // the scope has the error
    copies_[each] = made;
  }
  return made;
}

const Node* Recompute::trigger(Region& region) {
  if (region.trigger) return region.trigger;
  std::vector<const Node*> before = region.arriving;
  before.push_back(region.end);
  // A gradient by a node that was passed is read by those that came after it.
  std::erase_if(open_, [&](const auto& gradient) { return passed_.contains(gradient.first); });
  const auto others = std::ranges::stable_partition(
      open_, [&](const auto& gradient) { return gradient.second->device() == region.end->device(); });
  for (auto at = open_.begin(); at != others.begin(); ++at) before.push_back(at->second);
  open_.erase(open_.begin(), others.begin());
  region.trigger = scope_.device(region.end->device()).named(region.name + "/recompute").after(before).node("NoOp", {});
  // Triggers wait for one another too, should nobody read the copies of this one.
  if (region.trigger) open_.emplace_back(nullptr, region.trigger);
  return region.trigger;
}

}  // namespace troupe
