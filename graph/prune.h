// SPDX-License-Identifier: Apache-2.0
// Which nodes a step needs, and in what order.
#pragma once
#include <span>
#include <vector>

#include "troupe/graph.h"

namespace troupe {

/// An error that says which output or node is empty, of another graph or not there. The caller holds the graph's mutex.
Status check_signature(const Graph& graph, std::span<const Output> fed, std::span<const Output> fetches,
                       std::span<const Node* const> targets);

/// The nodes that must run for `fetches` and `targets` when the outputs `fed` are given, in topological order: the
/// order in which they were added, which a graph keeps topological since a node's inputs exist before it. Nodes that
/// are reached through fed outputs alone are left out, as is a control input of which every output is fed.
/// Empty outputs are passed over. Time and memory: one bit for each node of the graph, then linear in what is needed.
std::vector<const Node*> needed_nodes(const Graph& graph, std::span<const Output> fed, std::span<const Output> fetches,
                                      std::span<const Node* const> targets);

}  // namespace troupe
