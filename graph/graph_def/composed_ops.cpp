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
                           kSequences = "ParseSequenceExample", kTableOfDataset = "InitializeTableFromDataset",
                           kPack = "TensorArrayPack", kUnpack = "TensorArrayUnpack", kStack = "Stack", kConv = "Conv";

/// Ops that take a tensor where their newer forms, of the same names with V2 after them, take its sizes.
constexpr std::string_view kVolumesOf = "Conv3DBackpropInput", kFiltersOf = "Conv3DBackpropFilter";

bool is_eigen(std::string_view op) { return op == "SelfAdjointEig" || op == "BatchSelfAdjointEig"; }

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

  /// The sizes of a tensor in the place of the tensor itself.
  void give_sizes(NodeDef& node, int of) {
    if (node.input_size() < 3 || is_control(node.input(2))) return;
    NodeDef& sizes = beside(node, "sizes", "Shape", {node.input(of)});
    if (const auto* type = find_attr(node, "T")) set_attr(sizes, "T") = *type;
    node.set_input(of, sizes.name());
    node.set_op(node.op() + "V2");
  }

  /// The convolution of images or volumes, by the number of its strides. Those of several batch dimensions stay.
  static void take_rank(NodeDef& node) {
    const int rank = list(node, "strides").i_size();
    const proto::AttrValue *batches = find_attr(node, "batch_dims"), *format = find_attr(node, "data_format");
    if ((rank != 4 && rank != 5) || (batches && batches->i() != 1)) return;
    const bool first = format && format->s() == "CHANNELS_FIRST", images = rank == 4;
    std::vector<std::string_view> kept = {"T", "strides", "padding"};
    if (list(node, "dilations").i_size() > 0) kept.push_back("dilations");
    if (images) kept.push_back("explicit_paddings");
    node.set_op(images ? "Conv2D" : "Conv3D");
    keep_attrs(node, kept);
    set_attr(node, "data_format").set_s(images ? (first ? "NCHW" : "NHWC") : (first ? "NCDHW" : "NDHWC"));
  }

  /// The eigenvalues as a row above the eigenvectors.
  void decompose(NodeDef& node) {
    if (node.input_size() < 1 || is_control(node.input(0))) return;
    NodeDef& both = beside(node, "eigen", "SelfAdjointEigV2", {node.input(0)});
    NodeDef& axis = scalar(node, "axis", -2);
    NodeDef& row = beside(node, "values", "ExpandDims", {both.name(), axis.name()});
    if (const auto* type = find_attr(node, "T"))
      for (NodeDef* each : {&both, &row}) set_attr(*each, "T") = *type;
    replace_data(node, {row.name(), both.name() + ":1", axis.name()});
    node.set_op("ConcatV2");
    set_attr(node, "N").set_i(2);
  }

  /// All elements of a TensorArray by their numbers: read from it, or written into it.
  void number_elements(NodeDef& node) {
    const bool packs = node.op() == kPack;
    const int last = packs ? 1 : 2;
    if (node.input_size() <= last || is_control(node.input(last))) return;
    std::string count;
    if (packs) {
      count = beside(node, "count", "TensorArraySizeV3", {node.input(0), node.input(1)}).name();
    } else {
      NodeDef& sizes = beside(node, "sizes", "Shape", {node.input(1)});
      if (const auto* type = find_attr(node, "T")) set_attr(sizes, "T") = *type;
      NodeDef& first = scalar(node, "first", 0);
      NodeDef& gathered = beside(node, "count", "GatherV2", {sizes.name(), first.name(), first.name()});
      set_attr(gathered, "Tparams").set_type(proto::DT_INT32);
      for (const char* type : {"Tindices", "Taxis"}) set_attr(gathered, type).set_type(proto::DT_INT32);
      count = gathered.name();
    }
    NodeDef& numbers =
        beside(node, "numbers", "Range", {scalar(node, "start", 0).name(), count, scalar(node, "step", 1).name()});
    set_attr(numbers, "Tidx").set_type(proto::DT_INT32);
    std::vector<std::string> inputs = {node.input(0), numbers.name()};
    for (int i = 1; i <= last; ++i) inputs.push_back(node.input(i));
    replace_data(node, inputs);
    node.set_op(packs ? "TensorArrayGatherV3" : "TensorArrayScatterV3");
  }

  /// A stack that is as high as it must be.
  void raise(NodeDef& node) {
    const NodeDef& most = scalar(node, "most", -1);
    replace_data(node, {most.name()});
    node.set_op("StackV2");
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

  /// Other inputs before the control inputs.
  static void replace_data(NodeDef& node, std::vector<std::string> inputs) {
    for (const std::string& input : node.input())
      if (is_control(input)) inputs.push_back(input);
    node.mutable_input()->Assign(inputs.begin(), inputs.end());
  }

  NodeDef& scalar(const NodeDef& node, const char* what, int32_t value) {
    NodeDef& out = constant(node, what, proto::DT_INT32, -1);
    set_attr(out, "value").mutable_tensor()->add_int_val(value);
    return out;
  }

  /// A constant vector, or a scalar where the size is -1, where the node is, also in a loop or a branch.
  NodeDef& constant(const NodeDef& node, const char* what, proto::DataType type, int64_t size) {
    NodeDef& out = beside(node, what, "Const", {});
    if (node.input_size() > 0) {
      const std::string& first = node.input(0);
      out.add_input(is_control(first) ? first : "^" + first.substr(0, first.rfind(':')));
    }
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
  if (op == kVolumesOf && ops.find("Conv3DBackpropInputV2")) return "Shape, Conv3DBackpropInputV2";
  if (op == kFiltersOf && ops.find("Conv3DBackpropFilterV2")) return "Shape, Conv3DBackpropFilterV2";
  if (is_eigen(op) && ops.find("SelfAdjointEigV2")) return "SelfAdjointEigV2, ExpandDims, ConcatV2";
  if (op == kPack && ops.find("TensorArrayGatherV3")) return "TensorArraySizeV3, Range, TensorArrayGatherV3";
  if (op == kUnpack && ops.find("TensorArrayScatterV3")) return "Shape, GatherV2, Range, TensorArrayScatterV3";
  if (op == kConv && ops.find("Conv2D") && ops.find("Conv3D")) return "Conv2D, Conv3D";
  if (op == kStack && ops.find("StackV2")) return "StackV2";
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
    else if (node.op() == kVolumesOf) apart.give_sizes(node, 0);
    else if (node.op() == kFiltersOf) apart.give_sizes(node, 1);
    else if (is_eigen(node.op())) apart.decompose(node);
    else if (node.op() == kPack || node.op() == kUnpack) apart.number_elements(node);
    else if (node.op() == kStack) apart.raise(node);
    else if (node.op() == kConv) Apart::take_rank(node);
    else apart.convolve(node);
  }
  apart.finish();
}

}  // namespace troupe
