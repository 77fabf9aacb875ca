// SPDX-License-Identifier: Apache-2.0
// Ops that name their resource become ops on handles. That the results are TensorFlow's is what the golden case
// batches_of_sparse_tensors checks.
#include "graph/graph_def/named_resources.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "graph/graph_def/node_def.h"
#include "tests/op_library.h"
#include "troupe/graph_def.h"

using namespace troupe;

namespace {

struct GraphDefFixture {
  proto::NodeDef& add(const char* name, const char* op, std::initializer_list<const char*> inputs) {
    proto::NodeDef& node = *def.add_node();
    node.set_name(name);
    node.set_op(op);
    for (const char* input : inputs) node.add_input(input);
    return node;
  }
  const proto::NodeDef& node(std::string_view name) const {
    for (const proto::NodeDef& n : def.node())
      if (n.name() == name) return n;
    FAIL("no node " << name);
    return def.node(0);
  }
  std::vector<std::string> inputs(std::string_view name) const {
    return {node(name).input().begin(), node(name).input().end()};
  }
  std::string shared_name(std::string_view map) const { return find_attr(node(map), "shared_name")->s(); }

  OpRegistry ops = testing::op_library()->ops;
  KernelRegistry kernels = testing::op_library()->kernels;
  proto::GraphDef def;
};

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("maps of sparse tensors get handles, where their users are") {
  GraphDefFixture f;
  f.add("many", "AddManySparseToTensorsMap", {"s", "s:1", "shape", "^before"});
  set_attr(f.add("one", "AddSparseToTensorsMap", {"s", "s:1", "shape"}), "shared_name").set_s("many");
  set_attr(f.add("take", "TakeManySparseFromTensorsMap", {"queue"}), "shared_name").set_s("many");
  f.add("take/map", "NoOp", {});
  give_handles(f.def, f.ops);
  CHECK(f.node("many").op() == "_SparseTensorsMapInsert");
  CHECK(f.inputs("many") == Names{"many/map", "many/serialized"});
  CHECK(f.node("many/serialized").op() == "SerializeManySparse");
  CHECK(f.inputs("many/serialized") == Names{"s", "s:1", "shape", "^before"});
  CHECK(f.inputs("many/map") == Names{"^s", "^s", "^shape", "^before"});
  CHECK(f.node("one/serialized").op() == "SerializeSparse");
  CHECK(f.node("take").op() == "DeserializeSparse");
  CHECK(f.inputs("take") == Names{"take/taken"});
  CHECK(f.inputs("take/taken") == Names{"take/map_1", "queue"});
  for (const char* map : {"many/map", "one/map", "take/map_1"}) CHECK(f.shared_name(map) == "many");
}

TEST_CASE("ops on a staging area share its handle by name") {
  GraphDefFixture f;
  set_attr(f.add("put", "Stage", {"x", "^before"}), "shared_name").set_s("area");
  set_attr(f.add("take", "Unstage", {"^put"}), "shared_name").set_s("area");
  set_attr(*std::ranges::find(*f.def.mutable_node(), "take", &proto::NodeDef::name), "capacity").set_i(3);
  f.add("size", "StageSize", {});
  give_handles(f.def, f.ops);
  CHECK(f.node("put").op() == "_StagingAreaPut");
  CHECK(f.inputs("put") == Names{"put/area", "x", "^before"});
  CHECK(f.inputs("put/area") == Names{"^x", "^before"});
  CHECK(f.node("take").op() == "_StagingAreaGet");
  CHECK(f.inputs("take") == Names{"take/area", "^put"});
  CHECK(find_attr(f.node("take/area"), "capacity")->i() == 3);
  CHECK(f.node("size").op() == "_StagingAreaSize");
  for (const char* area : {"put/area", "take/area"}) CHECK(f.shared_name(area) == "area");
  CHECK(f.shared_name("size/area") == "size");
}

TEST_CASE("a map's user without inputs is an error, not a crash", "[bad_input]") {
  GraphDefFixture f;
  for (const char* op : {"AddSparseToTensorsMap", "AddManySparseToTensorsMap", "TakeManySparseFromTensorsMap"}) {
    INFO(op);
    Graph graph(f.ops);
    proto::GraphDef def;
    proto::NodeDef& node = *def.add_node();
    node.set_name("n");
    node.set_op(op);
    const Status status = from_graph_def(def.SerializeAsString(), graph);
    REQUIRE_FALSE(status.ok());
    CHECK_THAT(status.error().str(), Catch::Contains("'n"));
  }
}
