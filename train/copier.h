// SPDX-License-Identifier: Apache-2.0
// Copier: puts nodes of one graph into another, on other devices.
#pragma once
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "troupe/graph.h"

namespace troupe::nn {

/// Copies nodes of one graph to another.
class Copier {
 public:
  Copier(Graph& to, std::string prefix) : to_(to), prefix_(std::move(prefix)) {}

  /// `from` is `to` from now on.
  void replace(const Output& from, const Output& to) { outputs_[{from.node, from.port}] = to; }
  const Node* find(const Node& node) const {
    const auto at = nodes_.find(&node);
    return at == nodes_.end() ? nullptr : at->second;
  }
  Output now(const Output& o) const {
    if (const auto at = outputs_.find({o.node, o.port}); at != outputs_.end()) return at->second;
    const Node* node = find(*o.node);
    return node ? node->out(o.port) : Output{};
  }

  /// What the node reads must be there already, but for what comes back to a loop's Merge.
  Status copy(const Node& node, const std::string& device, const std::vector<const Node*>& after = {});
  /// Once all is copied.
  Status close_loops() {
    for (const auto& [merge, next] : open_) TROUPE_RETURN_IF_ERROR(to_.close_loop(*merge, now(next)));
    open_.clear();
    return {};
  }

 private:
  Graph& to_;
  const std::string prefix_;
  std::unordered_map<const Node*, const Node*> nodes_;
  std::map<std::pair<const Node*, int>, Output> outputs_;
  std::vector<std::pair<const Node*, Output>> open_;
};

}  // namespace troupe::nn
