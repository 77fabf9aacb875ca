// SPDX-License-Identifier: Apache-2.0
// Ops that become several when a graph is read. Golden cases hold the results to TensorFlow's.
#include "graph/graph_def/composed_ops.h"

#include <catch2/catch.hpp>

#include "graph/graph_def/node_def.h"
#include "tests/op_library.h"

using namespace troupe;

namespace {

using Strings = std::vector<std::string>;

proto::NodeDef& add_composed(proto::GraphDef& def, const char* op, const Strings& inputs, proto::DataType type) {
  proto::NodeDef& node = *def.add_node();
  node.set_name("n");
  node.set_op(op);
  node.set_device("/cpu:0");
  for (const std::string& input : inputs) node.add_input(input);
  set_attr(node, "T").set_type(type);
  set_attr(node, "mode").set_s("REFLECT");
  set_attr(node, "padding").set_s("SAME");
  set_attr(node, "_note").set_s("kept");
  return node;
}

Strings inputs_of(const proto::NodeDef& node) { return {node.input().begin(), node.input().end()}; }

}  // namespace

TEST_CASE("a convolution that resizes and pads becomes three nodes") {
  const auto& [ops, kernels] = *testing::op_library();
  proto::GraphDef def;
  set_attr(add_composed(def, "FusedResizeAndPadConv2D", {"x:1", "size", "paddings", "filter", "^c"}, proto::DT_DOUBLE),
           "resize_align_corners")
      .set_b(true);
  def.add_node()->set_name("n/padded");  // a name that is taken
  take_apart(def, ops);
  REQUIRE(def.node_size() == 5);
  const proto::NodeDef &conv = def.node(0), &resized = def.node(2), &cast = def.node(3), &padded = def.node(4);
  CHECK(conv.op() == "Conv2D");
  CHECK(conv.name() == "n");
  CHECK(inputs_of(conv) == Strings{"n/padded_1", "filter", "^c"});
  CHECK(find_attr(conv, "padding")->s() == "SAME");
  CHECK(find_attr(conv, "_note")->s() == "kept");
  CHECK_FALSE(find_attr(conv, "mode"));
  CHECK(resized.op() == "ResizeBilinear");
  CHECK(inputs_of(resized) == Strings{"x:1", "size"});
  CHECK(find_attr(resized, "align_corners")->b());
  CHECK(cast.op() == "Cast");
  CHECK(find_attr(cast, "DstT")->type() == proto::DT_DOUBLE);
  CHECK(padded.op() == "MirrorPad");
  CHECK(inputs_of(padded) == Strings{cast.name(), "paddings"});
  CHECK(find_attr(padded, "mode")->s() == "REFLECT");
  CHECK(padded.device() == "/cpu:0");
}

TEST_CASE("a convolution that pads becomes two nodes") {
  const auto& [ops, kernels] = *testing::op_library();
  proto::GraphDef def;
  add_composed(def, "FusedPadConv2D", {"x", "paddings", "filter"}, proto::DT_FLOAT);
  take_apart(def, ops);
  REQUIRE(def.node_size() == 2);
  CHECK(inputs_of(def.node(0)) == Strings{"n/padded", "filter"});
  CHECK(inputs_of(def.node(1)) == Strings{"x", "paddings"});
}

TEST_CASE("keys of sequences become constants where the node is") {
  const auto& [ops, kernels] = *testing::op_library();
  proto::GraphDef def;
  proto::NodeDef& node =
      add_composed(def, "ParseSequenceExample", {"records:2", "names", "default", "^c"}, proto::DT_FLOAT);
  set_attr(node, "context_dense_keys").mutable_list()->add_s("one");
  for (const char* key : {"a", "b"}) set_attr(node, "feature_list_dense_keys").mutable_list()->add_s(key);
  set_attr(node, "feature_list_dense_missing_assumed_empty").mutable_list()->add_s("b");
  set_attr(node, "Nfeature_list_dense").set_i(2);
  take_apart(def, ops);
  REQUIRE(def.node_size() == 8);
  const proto::NodeDef &parse = def.node(0), &may_miss = def.node(7);
  CHECK(parse.op() == "ParseSequenceExampleV2");
  CHECK(inputs_of(parse) == Strings{"records:2", "names", "n/context_sparse_keys", "n/context_dense_keys", "n/no_keys",
                                    "n/feature_list_sparse_keys", "n/feature_list_dense_keys", "n/no_keys_1",
                                    "n/may_miss", "default", "^c"});
  CHECK(find_attr(parse, "Nfeature_list_dense")->i() == 2);
  CHECK_FALSE(find_attr(parse, "feature_list_dense_keys"));
  CHECK(inputs_of(may_miss) == Strings{"^records"});
  const proto::TensorProto& flags = find_attr(may_miss, "value")->tensor();
  REQUIRE(flags.bool_val_size() == 2);
  CHECK_FALSE(flags.bool_val(0));
  CHECK(flags.bool_val(1));
}

TEST_CASE("a table is filled with one batch of a whole dataset") {
  const auto& [ops, kernels] = *testing::op_library();
  proto::GraphDef def;
  proto::NodeDef& table = *def.add_node();
  table.set_name("table");
  table.set_op("HashTableV2");
  set_attr(table, "key_dtype").set_type(proto::DT_STRING);
  set_attr(table, "value_dtype").set_type(proto::DT_INT64);
  proto::NodeDef& passed = *def.add_node();
  passed.set_name("passed");
  passed.set_op("IdentityN");
  for (const char* input : {"other", "table"}) passed.add_input(input);
  add_composed(def, "InitializeTableFromDataset", {"passed:1", "dataset:2", "^c"}, proto::DT_FLOAT);
  take_apart(def, ops);
  REQUIRE(def.node_size() == 7);
  const proto::NodeDef &fill = def.node(2), &size = def.node(3), &batch = def.node(5), &entries = def.node(6);
  CHECK(fill.op() == "InitializeTableV2");
  CHECK(inputs_of(fill) == Strings{"passed:1", "n/entries", "n/entries:1", "^c"});
  CHECK(find_attr(fill, "Tkey")->type() == proto::DT_STRING);
  CHECK(find_attr(fill, "Tval")->type() == proto::DT_INT64);
  CHECK(find_attr(size, "value")->tensor().int64_val(0) == INT64_MAX);
  CHECK(inputs_of(batch) == Strings{"dataset:2", "n/size", "n/drop"});
  CHECK(inputs_of(entries) == Strings{"n/batch"});
  CHECK(find_attr(entries, "output_types")->list().type(1) == proto::DT_INT64);
}

TEST_CASE("a table whose types are not known stays one that import refuses", "[bad_input]") {
  const auto& [ops, kernels] = *testing::op_library();
  for (const char* handle : {"none", "round", "x:7"}) {
    proto::GraphDef def;
    for (const char* name : {"round", "x"}) {
      proto::NodeDef& node = *def.add_node();
      node.set_name(name);
      node.set_op("Identity");
      node.add_input("round");
    }
    add_composed(def, "InitializeTableFromDataset", {handle, "dataset"}, proto::DT_FLOAT);
    take_apart(def, ops);
    CHECK(def.node_size() == 3);
    CHECK(def.node(2).op() == "InitializeTableFromDataset");
  }
}

TEST_CASE("composed ops that lack inputs stay ones that import refuses", "[bad_input]") {
  const auto& [ops, kernels] = *testing::op_library();
  for (const char* op :
       {"FusedPadConv2D", "FusedResizeAndPadConv2D", "ParseSequenceExample", "InitializeTableFromDataset"}) {
    proto::GraphDef def;
    add_composed(def, op, {"x", "^c"}, proto::DT_FLOAT);
    take_apart(def, ops);
    CHECK(def.node_size() == 1);
    CHECK(def.node(0).op() == op);
  }
}
