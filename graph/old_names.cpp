// SPDX-License-Identifier: Apache-2.0
// From names of ops on references to names of ops on handles.
#include "graph/old_names.h"

#include <algorithm>

namespace troupe {
namespace {

/// Whether an op of this name, or of an other that begins or ends so, is one of those.
bool is_old(std::string_view op) {
  static constexpr std::string_view kStarts[] = {"Queue", "Reader", "LookupTable", "InitializeTable"};
  static constexpr std::string_view kEnds[] = {"Queue", "Reader", "HashTable", "HashTableOfTensors"};
  return std::ranges::any_of(kStarts, [&](auto part) { return op.starts_with(part); }) ||
         std::ranges::any_of(kEnds, [&](auto part) { return op.ends_with(part); });
}

std::string form_for_handles(const std::string& op) {
  if (op.starts_with("Accumulator") || op == "ConditionalAccumulator") return "Resource" + op;
  if (op == "MutableDenseHashTable") return "";  // its other form has one input more
  return is_old(op) ? op + "V2" : "";
}

}  // namespace

void rename_old_ops(proto::GraphDef& def, const OpRegistry& ops) {
  for (proto::NodeDef& node : *def.mutable_node()) {
    if (ops.find(node.op())) continue;
    if (const std::string form = form_for_handles(node.op()); ops.find(form)) node.set_op(form);
  }
}

}  // namespace troupe
