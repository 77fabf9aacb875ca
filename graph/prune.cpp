// SPDX-License-Identifier: Apache-2.0
// Checks of a signature, and backward reachability that stops at feeds.
#include "graph/prune.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

namespace troupe {
namespace {

Status check_ours(const Graph& graph, const Node& n, const char* what) {
  if (graph.owns(&n)) return {};
  return invalid_argument("node '{}' cannot be {}: it is of another graph", n.name(), what);
}

Status check_output(const Graph& graph, const Output& o, const char* what) {
  if (!o.node) return invalid_argument("an empty output cannot be {}", what);
  TROUPE_RETURN_IF_ERROR(check_ours(graph, *o.node, what));
  if (o.port >= 0 && o.port < o.node->num_outputs()) return {};
  return make_error(Code::kNotFound, "node '{}' has {} outputs, no number {} to be {}", o.node->name(),
                    o.node->num_outputs(), o.port, what);
}

}  // namespace

Status check_signature(const Graph& graph, std::span<const Output> fed, std::span<const Output> fetches,
                       std::span<const Node* const> targets) {
  for (const Output& o : fed) TROUPE_RETURN_IF_ERROR(check_output(graph, o, "fed"));
  for (const Output& o : fetches) TROUPE_RETURN_IF_ERROR(check_output(graph, o, "fetched"));
  for (const Node* n : targets) {
    if (!n) return invalid_argument("an empty node cannot be a target");
    TROUPE_RETURN_IF_ERROR(check_ours(graph, *n, "a target"));
  }
  return {};
}

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

  // From the last node to the first, since inputs come before their readers; but the back edge of a loop leads to a
  // node that was passed already, which then waits for a look of its own.
  std::vector<uint64_t> seen((static_cast<size_t>(graph.size()) + 63) / 64);  // bit by id
  std::vector<const Node*> passed;
  int at = graph.size();
  const auto want = [&](const Node* n) {
    if (!n) return;
    uint64_t& word = seen[static_cast<size_t>(n->id()) / 64];
    const uint64_t bit = uint64_t{1} << n->id() % 64;
    if (!(word & bit) && n->id() >= at) passed.push_back(n);
    word |= bit;
  };
  const auto look = [&](const Node& n) {
    for (const Output& input : n.inputs())
      if (fed_ports.empty() || !is_fed(input)) want(input.node);
    for (const Node* c : n.control_inputs())
      if (fed_ports.empty() || !wholly_fed(*c)) want(c);
  };
  for (const Output& o : fetches)
    if (o && !is_fed(o)) want(o.node);
  for (const Node* n : targets) want(n);
  for (size_t word = seen.size(); word-- > 0;) {
    if (seen[word] == 0) continue;
    for (int bit = 63; bit >= 0; --bit) {
      if (!(seen[word] >> bit & 1)) continue;
      at = static_cast<int>(word * 64) + bit;
      look(graph.node(at));
      while (!passed.empty()) {
        const Node& n = *passed.back();
        passed.pop_back();
        look(n);
      }
    }
  }
  std::vector<const Node*> needed;
  for (size_t word = 0; word < seen.size(); ++word)
    for (uint64_t bits = seen[word]; bits != 0; bits &= bits - 1)
      needed.push_back(&graph.node(static_cast<int>(word * 64) + std::countr_zero(bits)));
  return needed;
}

}  // namespace troupe
