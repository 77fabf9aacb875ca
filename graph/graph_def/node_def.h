// SPDX-License-Identifier: Apache-2.0
// What the rewritings of a GraphDef ask of its nodes and change in them.
#pragma once
#include <string_view>

#include "graph/graph_def/graph.pb.h"

namespace troupe {

/// The attribute `name`, or nullptr.
inline const proto::AttrValue* find_attr(const proto::NodeDef& node, std::string_view name) {
  for (const proto::AttrEntry& e : node.attr())
    if (e.key() == name) return &e.value();
  return nullptr;
}

/// The attribute `name` to write to; new if there is none.
inline proto::AttrValue& set_attr(proto::NodeDef& node, std::string_view name) {
  for (proto::AttrEntry& e : *node.mutable_attr())
    if (e.key() == name) return *e.mutable_value();
  proto::AttrEntry& e = *node.add_attr();
  e.set_key(std::string(name));
  return *e.mutable_value();
}

/// Whether an entry of NodeDef's `input` is a control input: "^node".
inline bool is_control(std::string_view input) { return input.starts_with('^'); }

}  // namespace troupe
