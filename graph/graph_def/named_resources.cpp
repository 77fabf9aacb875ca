// SPDX-License-Identifier: Apache-2.0
// From names of resources to handles.
#include "graph/graph_def/named_resources.h"

#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "graph/graph_def/node_def.h"

namespace troupe {
namespace {

using proto::NodeDef;

constexpr std::string_view kMakeIterator = "MakeIterator";

/// What an op on a staging area or a staging map becomes; empty for any other op.
std::string staging_form(std::string_view op) {
  if (op == "Stage") return "_StagingAreaPut";
  if (op == "Unstage") return "_StagingAreaGet";
  if (op == "StagePeek" || op == "StageSize" || op == "StageClear")
    return fmt::format("_StagingArea{}", op.substr(std::string_view("Stage").size()));
  constexpr std::string_view kOrdered = "Ordered";  // any order will do for the others, so maps are all ordered
  if (op.starts_with(kOrdered)) op.remove_prefix(kOrdered.size());
  if (op == "MapStage") return "_StagingMapPut";
  if (op == "MapUnstage") return "_StagingMapTake";
  if (op == "MapUnstageNoKey") return "_StagingMapTakeAny";
  if (op == "MapPeek" || op == "MapSize" || op == "MapIncompleteSize" || op == "MapClear")
    return fmt::format("_Staging{}", op);
  return "";
}

constexpr std::string_view kStagingMap = "_StagingMap";

class ResourceRewrite {
 public:
  explicit ResourceRewrite(proto::GraphDef& def) : def_(def) {
    for (const NodeDef& node : def.node()) names_.insert(node.name());
  }

  void add_sparse(NodeDef& node, bool many) {
    NodeDef serialize = beside(node, "serialized", many ? "SerializeManySparse" : "SerializeSparse");
    *serialize.mutable_input() = node.input();
    copy_attr(node, "T", serialize, "T");
    set_attr(serialize, "out_type").set_type(proto::DT_VARIANT);
    NodeDef map = handle_of(node, "map", "_SparseTensorsMap");
    become(node, "_SparseTensorsMapInsert", {map.name(), serialize.name()});
    added_.insert(added_.end(), {map, serialize});
  }

  void take_sparse(NodeDef& node) {
    NodeDef map = handle_of(node, "map", "_SparseTensorsMap"), take = beside(node, "taken", "_SparseTensorsMapTake");
    take.add_input(map.name());
    for (const std::string& input : node.input()) take.add_input(input);
    NodeDef old = node;
    become(node, "DeserializeSparse", {take.name()});
    copy_attr(old, "dtype", node, "dtype");
    set_attr(node, "Tserialized").set_type(proto::DT_VARIANT);
    added_.insert(added_.end(), {map, take});
  }

  void stage(NodeDef& node) {
    const std::string form = staging_form(node.op());
    const bool map = form.starts_with(kStagingMap);
    NodeDef area = map ? handle_of(node, "map", kStagingMap.data()) : handle_of(node, "area", "_StagingArea");
    for (const char* attr : {"capacity", "memory_limit"}) copy_attr(node, attr, area, attr);
    if (!map) copy_attr(node, "dtypes", area, "dtypes");  // nodes of a map have those of some components
    std::vector<std::string> inputs = {area.name()};
    inputs.insert(inputs.end(), node.input().begin(), node.input().end());
    const NodeDef old = node;
    become(node, form.c_str(), inputs);
    if (!form.ends_with("Size") && !form.ends_with("Clear")) copy_attr(old, "dtypes", node, "dtypes");
    copy_attr(old, "fake_dtypes", node, "fake_dtypes");
    added_.push_back(std::move(area));
  }

  /// What gives an iterator its dataset runs at the iterator's host, so the handle comes first; and there may be an
  /// iterator without a dataset.
  static void set_dataset(NodeDef& node) {
    node.set_op("_SetIteratorDataset");
    if (node.input_size() >= 2) node.mutable_input()->SwapElements(0, 1);
  }

  void finish() {
    for (NodeDef& node : added_) *def_.add_node() = std::move(node);
  }

 private:
  /// A node of another op next to `node`, on its device.
  NodeDef beside(const NodeDef& node, const char* what, const char* op) {
    NodeDef out;
    const std::string base = node.name() + "/" + what;
    std::string name = base;
    for (int suffix = 1; !names_.insert(name).second; ++suffix) name = base + "_" + std::to_string(suffix);
    out.set_name(name);
    out.set_op(op);
    out.set_device(node.device());
    return out;
  }

  /// The resource that a node names; its handle is made where the node is, also in a loop or a branch.
  NodeDef handle_of(const NodeDef& node, const char* what, const char* op) {
    NodeDef handle = beside(node, what, op);
    copy_attr(node, "container", handle, "container");
    const auto* shared = find_attr(node, "shared_name");
    set_attr(handle, "shared_name").set_s(shared && !shared->s().empty() ? shared->s() : node.name());
    for (const std::string& input : node.input())
      handle.add_input(is_control(input) ? input : "^" + input.substr(0, input.rfind(':')));
    return handle;
  }

  static void copy_attr(const NodeDef& from, const char* name, NodeDef& to, const char* as) {
    if (const auto* attr = find_attr(from, name)) set_attr(to, as) = *attr;
  }

  static void become(NodeDef& node, const char* op, const std::vector<std::string>& inputs) {
    node.set_op(op);
    node.clear_input();
    node.clear_attr();
    for (const std::string& input : inputs) node.add_input(input);
  }

  proto::GraphDef& def_;
  std::unordered_set<std::string> names_;
  std::vector<NodeDef> added_;
};

}  // namespace

std::string form_with_handle(std::string_view op, const OpRegistry& ops) {
  if (const std::string form = staging_form(op); !form.empty() && ops.find(form))
    return fmt::format("{}, {}", form.starts_with(kStagingMap) ? kStagingMap : "_StagingArea", form);
  if (op == kMakeIterator) return ops.find("_SetIteratorDataset") ? "_SetIteratorDataset" : "";
  if (!ops.find("_SparseTensorsMap")) return "";
  if (op == "AddSparseToTensorsMap") return "SerializeSparse, _SparseTensorsMap, _SparseTensorsMapInsert";
  if (op == "AddManySparseToTensorsMap") return "SerializeManySparse, _SparseTensorsMap, _SparseTensorsMapInsert";
  if (op == "TakeManySparseFromTensorsMap") return "_SparseTensorsMap, _SparseTensorsMapTake, DeserializeSparse";
  return "";
}

void give_handles(proto::GraphDef& def, const OpRegistry& ops) {
  std::unique_ptr<ResourceRewrite> rewrite;  // few graphs need one
  bool makes_iterators = false;
  for (NodeDef& node : *def.mutable_node()) {
    if (ops.find(node.op()) || form_with_handle(node.op(), ops).empty()) continue;
    if (node.op() == kMakeIterator) {
      makes_iterators = true;
      ResourceRewrite::set_dataset(node);
      continue;
    }
    if (!rewrite) rewrite = std::make_unique<ResourceRewrite>(def);
    if (!staging_form(node.op()).empty()) rewrite->stage(node);
    else if (node.op().starts_with("Take")) rewrite->take_sparse(node);
    else rewrite->add_sparse(node, node.op().starts_with("AddMany"));
  }
  if (rewrite) rewrite->finish();
  if (makes_iterators)
    for (NodeDef& node : *def.mutable_node())
      if (node.op() == "IteratorV2" || node.op() == "Iterator") set_attr(node, "_dataset_comes_later").set_b(true);
}

}  // namespace troupe
