// SPDX-License-Identifier: Apache-2.0
#include "graph/graph_def/snapshot_hash.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "graph/graph_def/functions.h"
#include "graph/graph_def/node_def.h"

namespace troupe {
namespace {

using proto::NodeDef;

/// FNV-1a.
class NodeHash {
 public:
  void add(std::string_view bytes) {
    add(bytes.size());
    for (const char byte : bytes) add_byte(static_cast<uint8_t>(byte));
  }
  void add(uint64_t word) {
    for (int i = 0; i < 8; ++i) add_byte(static_cast<uint8_t>(word >> (8 * i)));
  }
  uint64_t value() const { return value_; }

 private:
  void add_byte(uint8_t byte) { value_ = (value_ ^ byte) * 0x100000001b3; }
  uint64_t value_ = 0xcbf29ce484222325;
};

/// Whether an attribute says something of values.
bool counts(const proto::AttrEntry& attr) { return !attr.key().starts_with('_') && attr.key() != "metadata"; }

/// The bytes of a graph that a node carries, with its functions called by their places: TensorFlow gives each function
/// of a process another name. What is not such a graph stays.
std::string without_names(const std::string& bytes) {
  proto::GraphDef body;
  if (!body.ParseFromString(bytes)) return bytes;
  body.DiscardUnknownFields();  // among them names again
  std::unordered_map<std::string, std::string> places;
  for (auto& function : *body.mutable_library()->mutable_function()) {
    std::string& name = *function.mutable_signature()->mutable_name();
    name = places.try_emplace(name, std::to_string(places.size())).first->second;
  }
  const auto rename = [&](std::string& name) {
    if (const auto place = places.find(name); place != places.end()) name = place->second;
  };
  const auto clear = [&](auto& nodes) {
    for (NodeDef& node : nodes) {
      rename(*node.mutable_op());
      auto& attrs = *node.mutable_attr();
      attrs.erase(std::remove_if(attrs.begin(), attrs.end(), [](const auto& attr) { return !counts(attr); }),
                  attrs.end());
      std::sort(attrs.begin(), attrs.end(), [](const auto& a, const auto& b) { return a.key() < b.key(); });
      for (proto::AttrEntry& attr : attrs) {
        if (attr.value().has_func()) rename(*attr.mutable_value()->mutable_func()->mutable_name());
        if (attr.value().has_list())
          for (auto& func : *attr.mutable_value()->mutable_list()->mutable_func()) rename(*func.mutable_name());
      }
    }
  };
  clear(*body.mutable_node());
  for (auto& function : *body.mutable_library()->mutable_function()) clear(*function.mutable_node_def());
  return body.SerializeAsString();
}

class Hashing {
 public:
  Hashing(const proto::GraphDef& def, const std::vector<Tensor>& apart) : apart_(apart) {
    for (const NodeDef& node : def.node()) nodes_[node.name()] = &node;
  }

  /// Of all that reaches this input, in the order in which the inputs lead there.
  uint64_t of(const std::string& input) {
    std::unordered_map<std::string_view, uint64_t> places;
    std::vector<std::string_view> reached;
    NodeHash hash;
    const auto reach = [&](std::string_view in) {
      const size_t colon = in.rfind(':');
      const std::string_view name = in.substr(is_control(in) ? 1 : 0, colon);
      const auto [at, added] = places.try_emplace(name, places.size());
      if (added) reached.push_back(name);
      hash.add(at->second);
      hash.add(is_control(in) ? "^" : colon == std::string_view::npos ? "0" : in.substr(colon + 1));
    };
    reach(input);
    for (size_t i = 0; i < reached.size(); ++i) {
      const auto node = nodes_.find(reached[i]);
      if (node == nodes_.end()) continue;  // an error of the import, soon
      hash.add(own(*node->second));
      for (const std::string& in : node->second->input()) reach(in);
    }
    return hash.value();
  }

 private:
  /// Of the op and its attributes, but those that say nothing of values.
  uint64_t own(const NodeDef& node) {
    const auto [at, added] = own_.try_emplace(&node, 0);
    if (!added) return at->second;
    std::map<std::string_view, const proto::AttrValue*> attrs;
    for (const proto::AttrEntry& attr : node.attr())
      if (counts(attr)) attrs[attr.key()] = &attr.value();
    NodeHash hash;
    hash.add(node.op());
    const bool carries = find_attr(node, kContainerOfFunctions) != nullptr;
    for (const auto& [name, value] : attrs) {
      hash.add(name);
      hash.add(carries && value->value_case() == proto::AttrValue::kS ? without_names(value->s())
                                                                      : value->SerializeAsString());
      const uint64_t place = value->tensor().content_apart();
      if (place > 0 && place <= apart_.size()) {
        const Tensor& bytes = apart_[place - 1];
        hash.add({reinterpret_cast<const char*>(bytes.data<uint8_t>()), static_cast<size_t>(bytes.elements())});
      }
    }
    return at->second = hash.value();
  }

  const std::vector<Tensor>& apart_;
  std::unordered_map<std::string_view, const NodeDef*> nodes_;
  std::unordered_map<const NodeDef*, uint64_t> own_;
};

}  // namespace

void hash_snapshots(proto::GraphDef& def, const std::vector<Tensor>& apart) {
  std::vector<std::pair<NodeDef*, uint64_t>> found;
  std::optional<Hashing> hashing;
  for (NodeDef& node : *def.mutable_node()) {
    const proto::AttrValue* valid = find_attr(node, "hash_valid");
    if (node.op() != "SnapshotDatasetV2" || (valid && valid->b()) || node.input_size() == 0) continue;
    if (!hashing) hashing.emplace(def, apart);
    found.emplace_back(&node, hashing->of(node.input(0)));
  }
  for (const auto& [node, hash] : found) {
    set_attr(*node, "hash_valid").set_b(true);
    set_attr(*node, "hash").set_i(static_cast<int64_t>(hash));
  }
}

}  // namespace troupe
