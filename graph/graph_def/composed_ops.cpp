// SPDX-License-Identifier: Apache-2.0
#include "graph/graph_def/composed_ops.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <list>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/graph_def/node_def.h"

namespace troupe {
namespace {

using proto::NodeDef;

constexpr std::string_view kPadConv = "FusedPadConv2D", kResizePadConv = "FusedResizeAndPadConv2D",
                           kSequences = "ParseSequenceExample", kTableOfDataset = "InitializeTableFromDataset";
/// How far the node that makes a table is looked for; nobody passes a handle on more often.
constexpr int kMostHandedOn = 100;

class Apart {
 public:
  explicit Apart(proto::GraphDef& def) : def_(def) {
    for (int i = 0; i < def.node_size(); ++i) places_.emplace(def.node(i).name(), i);
    for (const NodeDef& node : def.node()) names_.insert(node.name());
  }

  /// All elements of the dataset as one, which fills the table.
  void fill(NodeDef& node) {
    auto& in = *node.mutable_input();
    if (in.size() < 2 || is_control(in[1])) return;
    const NodeDef* table = maker_of(in[0]);
    const proto::AttrValue *key = table ? find_attr(*table, "key_dtype") : nullptr,
                           *value = table ? find_attr(*table, "value_dtype") : nullptr;
    if (!key || !value) return;
    NodeDef &size = constant(node, "size", proto::DT_INT64, -1), &drop = constant(node, "drop", proto::DT_BOOL, -1);
    set_attr(size, "value").mutable_tensor()->add_int64_val(std::numeric_limits<int64_t>::max());
    set_attr(drop, "value").mutable_tensor()->add_bool_val(false);
    NodeDef& batch = beside(node, "batch", "BatchDatasetV2", {in[1], size.name(), drop.name()});
    NodeDef& entries = beside(node, "entries", "DatasetToSingleElement", {batch.name()});
    for (NodeDef* each : {&batch, &entries}) {
      for (const proto::AttrValue* type : {key, value}) {
        set_attr(*each, "output_types").mutable_list()->add_type(type->type());
        set_attr(*each, "output_shapes").mutable_list()->add_shape()->set_unknown_rank(true);
      }
    }
    std::vector<std::string> inputs = {in[0], entries.name(), entries.name() + ":1"};
    inputs.insert(inputs.end(), in.begin() + 2, in.end());
    in.Assign(inputs.begin(), inputs.end());
    node.set_op("InitializeTableV2");
    keep_attrs(node, {});
    set_attr(node, "Tkey").set_type(key->type());
    set_attr(node, "Tval").set_type(value->type());
  }

  void convolve(NodeDef& node) {
    const bool resizes = node.op() == kResizePadConv;
    std::vector<std::string> data, after;
    for (const std::string& input : node.input()) (is_control(input) ? after : data).push_back(input);
    if (data.size() != (resizes ? 4 : 3)) return;  // the import says so
    const proto::AttrValue* given = find_attr(node, "T");
    const proto::DataType type = given ? given->type() : proto::DT_FLOAT;
    std::string x = data[0];
    if (resizes) {
      NodeDef& resized = beside(node, "resized", "ResizeBilinear", {x, data[1]});
      set_attr(resized, "T").set_type(type);
      if (const auto* corners = find_attr(node, "resize_align_corners")) set_attr(resized, "align_corners") = *corners;
      x = resized.name();
      if (type != proto::DT_FLOAT) {  // which it always gives
        NodeDef& cast = beside(node, "cast", "Cast", {x});
        set_attr(cast, "SrcT").set_type(proto::DT_FLOAT);
        set_attr(cast, "DstT").set_type(type);
        x = cast.name();
      }
    }
    NodeDef& padded = beside(node, "padded", "MirrorPad", {x, data[data.size() - 2]});
    set_attr(padded, "T").set_type(type);
    set_attr(padded, "Tpaddings").set_type(proto::DT_INT32);
    if (const auto* mode = find_attr(node, "mode")) set_attr(padded, "mode") = *mode;
    node.set_op("Conv2D");
    node.clear_input();
    node.add_input(padded.name());
    node.add_input(data.back());
    for (const std::string& control : after) node.add_input(control);
    keep_attrs(node, {"T", "strides", "padding"});
  }

  void parse(NodeDef& node, const OpDef& newer) {
    auto& in = *node.mutable_input();
    if (in.size() < 2 || is_control(in[1])) return;
    std::vector<std::string> inputs = {in[0], in[1]};
    for (const char* keys :
         {"context_sparse_keys", "context_dense_keys", "", "feature_list_sparse_keys", "feature_list_dense_keys", ""})
      inputs.push_back(strings(node, keys));
    inputs.push_back(may_miss(node));
    inputs.insert(inputs.end(), in.begin() + 2, in.end());
    in.Assign(inputs.begin(), inputs.end());
    node.set_op(newer.name());
    auto& attrs = *node.mutable_attr();
    attrs.erase(std::remove_if(attrs.begin(), attrs.end(),
                               [&](const auto& e) { return !e.key().starts_with('_') && !newer.find_attr(e.key()); }),
                attrs.end());
  }

  void finish() {
    for (NodeDef& node : added_) *def_.add_node() = std::move(node);
  }

 private:
  /// A new node next to `node`, on its device.
  NodeDef& beside(const NodeDef& node, const char* what, const char* op, const std::vector<std::string>& inputs) {
    const std::string base = node.name() + "/" + what;
    std::string name = base;
    for (int suffix = 1; !names_.insert(name).second; ++suffix) name = fmt::format("{}_{}", base, suffix);
    NodeDef& out = added_.emplace_back();
    out.set_name(name);
    out.set_op(op);
    out.set_device(node.device());
    for (const std::string& input : inputs) out.add_input(input);
    return out;
  }

  /// The node whose output an input is, before what hands it on.
  const NodeDef* maker_of(const std::string& input) const {
    std::string at = input;
    for (int steps = 0; steps < kMostHandedOn; ++steps) {
      const size_t colon = at.rfind(':');
      const auto place = places_.find(at.substr(0, colon));
      if (place == places_.end()) return nullptr;
      const NodeDef& node = def_.node(place->second);
      if (node.op() != "Identity" && node.op() != "IdentityN") return &node;
      const int port = colon == std::string::npos ? 0 : std::atoi(at.c_str() + colon + 1);
      if (port < 0 || port >= node.input_size()) return nullptr;
      at = node.input(port);
    }
    return nullptr;
  }

  /// A constant vector, or a scalar where the size is -1, where the node is, also in a loop or a branch.
  NodeDef& constant(const NodeDef& node, const char* what, proto::DataType type, int64_t size) {
    NodeDef& out = beside(node, what, "Const", {"^" + node.input(0).substr(0, node.input(0).rfind(':'))});
    set_attr(out, "dtype").set_type(type);
    proto::TensorProto& tensor = *set_attr(out, "value").mutable_tensor();
    tensor.set_dtype(type);
    proto::TensorShapeProto& shape = *tensor.mutable_tensor_shape();
    if (size >= 0) shape.add_dim()->set_size(size);
    return out;
  }

  static const proto::AttrValue::ListValue& list(const NodeDef& node, std::string_view attr) {
    const proto::AttrValue* found = find_attr(node, attr);
    return found ? found->list() : proto::AttrValue::ListValue::default_instance();
  }

  std::string strings(const NodeDef& node, const char* attr) {
    const auto& values = list(node, attr).s();
    NodeDef& out = constant(node, *attr ? attr : "no_keys", proto::DT_STRING, values.size());
    *set_attr(out, "value").mutable_tensor()->mutable_string_val() = values;
    return out.name();
  }

  /// Of each dense list whether it may be missing.
  std::string may_miss(const NodeDef& node) {
    const auto &keys = list(node, "feature_list_dense_keys").s(),
               &missing = list(node, "feature_list_dense_missing_assumed_empty").s();
    NodeDef& out = constant(node, "may_miss", proto::DT_BOOL, keys.size());
    for (const std::string& key : keys)
      set_attr(out, "value").mutable_tensor()->add_bool_val(std::ranges::find(missing, key) != missing.end());
    return out.name();
  }

  static void keep_attrs(NodeDef& node, const std::vector<std::string_view>& kept) {
    auto& attrs = *node.mutable_attr();
    attrs.erase(std::remove_if(attrs.begin(), attrs.end(),
                               [&](const auto& e) {
                                 return !e.key().starts_with('_') && std::ranges::find(kept, e.key()) == kept.end();
                               }),
                attrs.end());
  }

  proto::GraphDef& def_;
  std::unordered_map<std::string, int> places_;  // of the nodes that the file has
  std::unordered_set<std::string> names_;
  std::list<NodeDef> added_;  // stay where they are while more are added
};

}  // namespace

std::string_view form_of_composed(std::string_view op, const OpRegistry& ops) {
  if (op == kPadConv && ops.find("MirrorPad") && ops.find("Conv2D")) return "MirrorPad, Conv2D";
  if (op == kResizePadConv && ops.find("ResizeBilinear") && !form_of_composed(kPadConv, ops).empty())
    return "ResizeBilinear, MirrorPad, Conv2D";
  if (op == kTableOfDataset && ops.find("BatchDatasetV2") && ops.find("DatasetToSingleElement"))
    return "BatchDatasetV2, DatasetToSingleElement, InitializeTableV2";
  if (op == kSequences && ops.find("ParseSequenceExampleV2")) return "ParseSequenceExampleV2";
  return "";
}

void take_apart(proto::GraphDef& def, const OpRegistry& ops) {
  const auto composed = [&](const NodeDef& node) {
    return !ops.find(node.op()) && !form_of_composed(node.op(), ops).empty();
  };
  if (std::ranges::none_of(def.node(), composed)) return;
  Apart apart(def);
  for (NodeDef& node : *def.mutable_node()) {
    if (!composed(node)) continue;
    if (node.op() == kSequences) apart.parse(node, *ops.find("ParseSequenceExampleV2"));
    else if (node.op() == kTableOfDataset) apart.fill(node);
    else apart.convolve(node);
  }
  apart.finish();
}

}  // namespace troupe
