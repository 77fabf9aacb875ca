// SPDX-License-Identifier: Apache-2.0
#include "graph/graph_def/parsing_datasets.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "graph/graph_def/node_def.h"

namespace troupe {
namespace {

using proto::NodeDef;

/// The lists of the node's attributes, and the function that is made of them.
class ParsingFunction {
 public:
  explicit ParsingFunction(const NodeDef& node) : node_(node) {}

  Result<std::string> bytes() {
    const auto &sparse = keys("sparse_keys"), &dense = keys("dense_keys"), &ragged = keys("ragged_keys");
    const auto &sparse_types = list("sparse_types").type(), &dense_types = list("Tdense").type(),
               &ragged_types = list("ragged_value_types").type(), &split_types = list("ragged_split_types").type();
    if (sparse.size() != sparse_types.size() || dense.size() != dense_types.size() ||
        dense.size() != list("dense_shapes").shape_size() || ragged.size() != ragged_types.size() ||
        ragged.size() != split_types.size())
      return invalid_argument("{} sparse, {} dense and {} ragged keys, but {}, {} and {} types", sparse.size(),
                              dense.size(), ragged.size(), sparse_types.size(), dense_types.size(),
                              ragged_types.size());
    NodeDef parse;
    parse.set_name("parse");
    parse.set_op("ParseExampleV2");
    for (const char* attr : {"sparse_types", "Tdense", "dense_shapes", "ragged_value_types", "ragged_split_types"})
      *set_attr(parse, attr).mutable_list() = list(attr);
    set_attr(parse, "num_sparse").set_i(sparse.size());
    parse.add_input(argument(0, proto::DT_STRING));
    parse.add_input(strings("names", {}));
    parse.add_input(strings("sparse_keys", sparse));
    parse.add_input(strings("dense_keys", dense));
    parse.add_input(strings("ragged_keys", ragged));
    for (int i = 0; i < dense.size(); ++i) parse.add_input(argument(i + 1, dense_types[i]));
    *body_.add_node() = std::move(parse);

    std::map<std::string, std::pair<std::string, int>> components;  // by key: a tensor and its type
    for (int i = 0; i < sparse.size(); ++i) {
      NodeDef& pack = add(fmt::format("sparse_{}", i), "SerializeSparse");
      set_attr(pack, "T").set_type(type_at(sparse_types, i));
      set_attr(pack, "out_type").set_type(proto::DT_VARIANT);
      for (int part = 0; part < 3; ++part) pack.add_input(parsed(part * sparse.size() + i));
      components[sparse[i]] = {pack.name(), proto::DT_VARIANT};
    }
    for (int i = 0; i < dense.size(); ++i) components[dense[i]] = {parsed(3 * sparse.size() + i), dense_types[i]};
    for (int i = 0; i < ragged.size(); ++i) {
      const int values = 3 * sparse.size() + dense.size() + i;
      NodeDef& pack = add(fmt::format("ragged_{}", i), "RaggedTensorToVariant");
      set_attr(pack, "Tvalues").set_type(type_at(ragged_types, i));
      set_attr(pack, "Tsplits").set_type(type_at(split_types, i));
      set_attr(pack, "RAGGED_RANK").set_i(1);
      set_attr(pack, "batched_input").set_b(false);
      pack.add_input(parsed(values + ragged.size()));
      pack.add_input(parsed(values));
      components[ragged[i]] = {pack.name(), proto::DT_VARIANT};
    }
    if (static_cast<int>(components.size()) != sparse.size() + dense.size() + ragged.size())
      return invalid_argument("the keys must differ from one another");
    int result = 0;
    for (const auto& [key, component] : components) {
      NodeDef& node = add(fmt::format("result_{}", result++), "Identity");
      set_attr(node, "T").set_type(static_cast<proto::DataType>(component.second));
      node.add_input(component.first);
    }
    return body_.SerializeAsString();
  }

 private:
  using Keys = google::protobuf::RepeatedPtrField<std::string>;

  static proto::DataType type_at(const google::protobuf::RepeatedField<int>& types, int i) {
    return static_cast<proto::DataType>(types[i]);
  }
  static std::string parsed(int output) { return fmt::format("parse:{}", output); }
  const proto::AttrValue::ListValue& list(const char* attr) const {
    const proto::AttrValue* found = find_attr(node_, attr);
    return found ? found->list() : proto::AttrValue::ListValue::default_instance();
  }
  const Keys& keys(const char* attr) const { return list(attr).s(); }
  NodeDef& add(const std::string& name, const char* op) {
    NodeDef& node = *body_.add_node();
    node.set_name(name);
    node.set_op(op);
    return node;
  }
  std::string argument(int i, int type) {
    NodeDef& node = add(fmt::format("argument_{}", i), "Placeholder");
    set_attr(node, "dtype").set_type(static_cast<proto::DataType>(type));
    return node.name();
  }
  std::string strings(const std::string& name, const Keys& values) {
    NodeDef& node = add(name, "Const");
    set_attr(node, "dtype").set_type(proto::DT_STRING);
    proto::TensorProto& tensor = *set_attr(node, "value").mutable_tensor();
    tensor.set_dtype(proto::DT_STRING);
    tensor.mutable_tensor_shape()->add_dim()->set_size(values.size());
    *tensor.mutable_string_val() = values;
    return node.name();
  }

  const NodeDef& node_;
  proto::GraphDef body_;
};

}  // namespace

std::string_view form_of_parsing(std::string_view op) {
  constexpr std::string_view kExperimental = "Experimental";
  if (op.starts_with(kExperimental)) op.remove_prefix(kExperimental.size());
  return op == "ParseExampleDataset" || op == "ParseExampleDatasetV2" ? "ParallelMapDatasetV2, ParseExampleV2" : "";
}

Status parse_by_map(proto::NodeDef& node) {
  ParsingFunction function(node);
  TROUPE_ASSIGN(std::string bytes, function.bytes());
  auto& in = *node.mutable_input();
  const auto data = static_cast<int>(std::ranges::find_if(in, is_control) - in.begin());
  const proto::AttrValue* types = find_attr(node, "Tdense");
  if (data != 2 + (types ? types->list().type_size() : 0))
    return invalid_argument("{} inputs, of a dataset, num_parallel_calls and defaults of {} dense features", data,
                            types ? types->list().type_size() : 0);
  std::rotate(in.begin() + 1, in.begin() + 2, in.begin() + data);  // num_parallel_calls behind the defaults
  NodeDef map;
  map.set_op("ParallelMapDatasetV2");
  for (const char* attr : {"output_types", "output_shapes"})
    if (const proto::AttrValue* given = find_attr(node, attr)) set_attr(map, attr) = *given;
  *set_attr(map, "Targuments").mutable_list()->mutable_type() =
      types ? types->list().type() : google::protobuf::RepeatedField<int>();
  set_attr(map, "f").set_s(std::move(bytes));
  node.set_op(map.op());
  *node.mutable_attr() = map.attr();
  return {};
}

}  // namespace troupe
