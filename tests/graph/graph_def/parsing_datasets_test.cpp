// SPDX-License-Identifier: Apache-2.0
// Datasets that parse records become maps. What they give: tests/golden, "datasets_parsed".
#include "graph/graph_def/parsing_datasets.h"

#include <catch2/catch.hpp>

#include "graph/graph_def/node_def.h"

using namespace troupe;

namespace {

proto::NodeDef parsing() {
  proto::NodeDef node;
  node.set_name("parse");
  node.set_op("ParseExampleDatasetV2");
  for (const char* input : {"dataset", "calls", "default", "^before"}) node.add_input(input);
  set_attr(node, "sparse_keys").mutable_list()->add_s("b");
  set_attr(node, "sparse_types").mutable_list()->add_type(proto::DT_INT64);
  set_attr(node, "dense_keys").mutable_list()->add_s("a");
  set_attr(node, "Tdense").mutable_list()->add_type(proto::DT_FLOAT);
  set_attr(node, "dense_shapes").mutable_list()->add_shape();
  set_attr(node, "output_types").mutable_list()->add_type(proto::DT_FLOAT);
  return node;
}

}  // namespace

TEST_CASE("a dataset that parses becomes a map whose function parses") {
  CHECK(form_of_parsing("MapDataset").empty());
  for (const char* op : {"ParseExampleDataset", "ParseExampleDatasetV2", "ExperimentalParseExampleDataset"})
    CHECK_FALSE(form_of_parsing(op).empty());
  proto::NodeDef node = parsing();
  REQUIRE(parse_by_map(node).ok());
  CHECK(node.op() == "ParallelMapDatasetV2");
  const std::vector<std::string> inputs(node.input().begin(), node.input().end());
  CHECK(inputs == std::vector<std::string>{"dataset", "default", "calls", "^before"});
  CHECK(find_attr(node, "Targuments")->list().type_size() == 1);
  proto::GraphDef body;
  REQUIRE(body.ParseFromString(find_attr(node, "f")->s()));
  std::map<std::string, const proto::NodeDef*> nodes;
  for (const proto::NodeDef& n : body.node()) nodes[n.name()] = &n;
  REQUIRE(nodes.contains("result_1"));
  CHECK(nodes.at("parse")->op() == "ParseExampleV2");
  CHECK(nodes.at("result_0")->input(0) == "parse:3");  // by keys: the dense one first
  CHECK(nodes.at(nodes.at("result_1")->input(0))->op() == "SerializeSparse");
}

TEST_CASE("a dataset that parses and lacks types, inputs or other keys is an error", "[bad_input]") {
  const auto refused = [](proto::NodeDef node, const char* words) {
    const Status status = parse_by_map(node);
    REQUIRE_FALSE(status.ok());
    CHECK_THAT(status.error().message, Catch::Contains(words));
  };
  proto::NodeDef node = parsing();
  set_attr(node, "Tdense").clear_list();
  refused(node, "1 dense and 0 ragged keys, but 1, 0 and 0 types");
  node = parsing();
  node.mutable_input()->RemoveLast();
  node.mutable_input()->RemoveLast();
  refused(node, "2 inputs");
  node = parsing();
  set_attr(node, "sparse_keys").mutable_list()->set_s(0, "a");
  refused(node, "must differ");
}
