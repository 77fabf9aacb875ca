// SPDX-License-Identifier: Apache-2.0
// Backward reachability that stops at feeds.
#include "graph/prune.h"

#include <algorithm>
#include <unordered_map>

namespace troupe {

std::vector<const Node*> needed_nodes(const Graph& graph, std::span<const Output> fed, std::span<const Output> fetches,
                                      std::span<const Node* const> targets) {
  std::unordered_map<int, std::vector<bool>> fed_ports;
  for (const Output& f : fed) {
    if (!f) continue;
    auto& ports = fed_ports[f.node->id()];
    ports.resize(f.node->num_outputs());
    if (f.port < f.node->num_outputs()) ports[f.port] = true;
  }
  const auto is_fed = [&](const Output& o) {
    const auto at = fed_ports.find(o.node->id());
    return at != fed_ports.end() && o.port < static_cast<int>(at->second.size()) && at->second[o.port];
  };
  const auto wholly_fed = [&](const Node& n) {
    const auto at = fed_ports.find(n.id());
    return at != fed_ports.end() && n.num_outputs() > 0 && std::ranges::find(at->second, false) == at->second.end();
  };

  std::vector<bool> seen(graph.size());
  std::vector<const Node*> needed;  // those at the end still wait for a look at their inputs
  const auto want = [&](const Node* n) {
    if (!n || seen[n->id()]) return;
    seen[n->id()] = true;
    needed.push_back(n);
  };
  for (const Output& o : fetches)
    if (o && !is_fed(o)) want(o.node);
  for (const Node* n : targets) want(n);
  for (size_t i = 0; i < needed.size(); ++i) {
    const Node& n = *needed[i];
    for (const Output& input : n.inputs())
      if (fed_ports.empty() || !is_fed(input)) want(input.node);
    for (const Node* c : n.control_inputs())
      if (fed_ports.empty() || !wholly_fed(*c)) want(c);
  }
  std::ranges::sort(needed, {}, &Node::id);
  return needed;
}

}  // namespace troupe
