// SPDX-License-Identifier: Apache-2.0
// Graphs as Graphviz text.
#include <map>

#include "base/printable.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

std::string dot_quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

/// The nodes of one scope, and the scopes in it.
struct DotCluster {
  std::vector<const Node*> nodes;
  std::map<std::string, DotCluster, std::less<>> inner;
};

DotCluster& cluster_of(DotCluster& root, std::string_view name) {
  DotCluster* at = &root;
  for (size_t slash; (slash = name.find('/')) != std::string_view::npos; name.remove_prefix(slash + 1))
    at = &at->inner[std::string(name.substr(0, slash))];
  return *at;
}

std::string short_name(const Node& n) { return n.name().substr(n.name().rfind('/') + 1); }

/// Depth is bounded by the parts of a name; a stack of our own would be no clearer.
void write(const DotCluster& cluster, int depth, int& count, std::string& out) {
  const std::string indent(2 * depth, ' ');
  for (const Node* n : cluster.nodes) {
    std::string label = printable(short_name(*n)) + "\n" + n->op().name();
    if (!n->device().empty()) label += "\n" + printable(n->device());
    out += fmt::format("{}n{} [label={}];\n", indent, n->id(), dot_quoted(label));
  }
  for (const auto& [name, inner] : cluster.inner) {
    out +=
        fmt::format("{}subgraph cluster_{} {{\n{}  label={};\n", indent, count++, indent, dot_quoted(printable(name)));
    write(inner, depth + 1, count, out);
    out += indent + "}\n";
  }
}

}  // namespace

std::string Graph::dot() const {
  const std::lock_guard growth(mutex_);
  DotCluster root;
  for (const Node& n : nodes_) cluster_of(root, n.name()).nodes.push_back(&n);
  std::string out = "digraph graph_ {\n  rankdir=TB;\n  node [shape=box, fontsize=10];\n";
  int count = 0;
  write(root, 1, count, out);
  for (const Node& n : nodes_) {
    for (const Output& in : n.inputs()) {
      const std::string label = fmt::format("{} {}", to_string(in.dtype()), in.shape().str());
      out += fmt::format("  n{} -> n{} [label={}];\n", in.node->id(), n.id(), dot_quoted(label));
    }
    for (const Node* c : n.control_inputs()) out += fmt::format("  n{} -> n{} [style=dashed];\n", c->id(), n.id());
  }
  return out + "}\n";
}

}  // namespace troupe
