// SPDX-License-Identifier: Apache-2.0
#include "plan/scatter.h"

#include <numeric>

#include "plan/cut.h"

namespace troupe {
namespace {

/// Sets of node ids; the least id of a set is its root.
class IdSets {
 public:
  explicit IdSets(int size) : parent_(static_cast<size_t>(size)) { std::iota(parent_.begin(), parent_.end(), 0); }
  int root(int id) {
    int& parent = parent_[static_cast<size_t>(id)];
    return parent == id ? id : parent = root(parent);
  }
  void unite(int a, int b) {
    a = root(a), b = root(b);
    parent_[static_cast<size_t>(std::max(a, b))] = std::min(a, b);
  }

 private:
  std::vector<int> parent_;
};

/// FNV-1a, and then mixed, so that the low bits depend on all: the same on every machine.
uint64_t hash(uint64_t seed, std::string_view text) {
  uint64_t out = 0xcbf29ce484222325u ^ seed;
  for (const char c : text) out = (out ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  out = (out ^ (out >> 31)) * 0x9e3779b97f4a7c15u;
  return out ^ (out >> 29);
}

}  // namespace

std::vector<uint32_t> scatter(const Graph& graph, const StepGraph& step, const Constraints& constraints,
                              const DeviceList& devices, const std::string& own, uint64_t seed) {
  IdSets sets(std::max(step.ids(), graph.size()));
  std::map<std::string, int> makers;
  std::vector<int> of_process;
  const auto take = [&](const Node& node) {
    for (const Output& in : node.inputs())
      if (in.dtype() == DType::kResource) sets.unite(node.id(), in.node->id());
    if (node.op().name().starts_with("Iterator") || node.op().name() == "ActorHandle") of_process.push_back(node.id());
    const std::string key = resource_key(node);
    if (!key.empty()) sets.unite(node.id(), makers.try_emplace(key, node.id()).first->second);
  };
  for (int id = 0; id < graph.size(); ++id)
    if (!step.has(id)) take(graph.node(id));
  std::map<uint32_t, int> groups;
  for (const Node* node : step.nodes()) {
    take(*node);
    sets.unite(node->id(), groups.try_emplace(constraints.group(*node), node->id()).first->second);
  }
  std::vector<bool> stays(static_cast<size_t>(std::max(step.ids(), graph.size())));
  for (const int id : of_process) stays[static_cast<size_t>(sets.root(id))] = true;

  std::vector<uint32_t> out(static_cast<size_t>(step.ids()));
  std::vector<uint32_t> allowed;
  for (const Node* node : step.nodes()) {
    const auto root = sets.root(node->id());
    allowed.clear();
    for (const uint32_t device : constraints.devices(*node))
      if (task_of(devices.name(device)) != own) allowed.push_back(device);
    uint32_t& device = out[static_cast<size_t>(node->id())];
    if (allowed.empty() || stays[static_cast<size_t>(root)]) device = constraints.by_hand(*node);
    else device = allowed[hash(seed, (root < graph.size() ? graph.node(root) : *node).name()) % allowed.size()];
  }
  return out;
}

}  // namespace troupe
