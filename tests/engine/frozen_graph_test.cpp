// SPDX-License-Identifier: Apache-2.0
// Frozen graphs give what the graph with variables gave, and what cannot be frozen is an error.
#include "tests/engine/fixtures.h"
#include "tests/graph/saved_models.h"
#include "troupe/control_flow.h"
#include "troupe/graph_def.h"
#include "troupe/saved_model.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;

namespace {

struct Frozen : TestEngine {
  Frozen() : v(variable("v", DType::kFloat32, {3})) {
    REQUIRE(engine->restore({{{"v", Tensor::of<float>({1, 2, 3})}}}).ok());
  }
  Output read() { return scope.op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}}); }
  /// The value of `out` by the frozen graph in an engine without variables.
  Tensor frozen_value(const std::vector<Feed>& feeds, Output out) {
    const auto snapshot = engine->snapshot().get();
    REQUIRE(snapshot.ok());
    const auto bytes = freeze_graph(graph, {out}, snapshot->variables);
    INFO((bytes.ok() ? "" : bytes.error().str()));
    REQUIRE(bytes.ok());
    TestEngine other;
    const Status added = from_graph_def(*bytes, other.graph);
    INFO((added.ok() ? "" : added.error().str()));
    REQUIRE(added.ok());
    for (int id = 0; id < other.graph.size(); ++id) CHECK(other.graph.node(id).op().name() != "VarHandleOp");
    std::vector<Feed> again;
    for (const Feed& f : feeds) again.push_back({*other.graph.output(f.output.name()), f.value});
    return other.value(std::move(again), *other.graph.output(out.name()));
  }
  void check_same(const std::vector<Feed>& feeds, Output out) {
    CHECK(frozen_value(feeds, out).identical(value(feeds, out)));
  }
  const Output v;
};

}  // namespace

TEST_CASE("reads of variables and gathers from them are frozen") {
  Frozen t;
  const Output x = t.placeholder(DType::kFloat32, {3});
  t.check_same({{x, Tensor::of<float>({4, 5, 6})}}, t.scope.op("Mul", {x, t.read()}));
  const Output i = t.placeholder(DType::kInt32, {-1}, "i");
  t.check_same({{i, Tensor::of<int32_t>({2, 0})}},
               t.scope.op("ResourceGather", {t.v, i}, {{"dtype", DType::kFloat32}}));
}

TEST_CASE("variables that are read in loops and branches are frozen") {
  Frozen t;
  const Output start = t.scope.constant(Tensor::of<float>({0, 0, 0}));
  const Output limit = t.scope.constant(Tensor::scalar<float>(9));
  const auto loop = while_loop(
      t.scope, {start},
      [&](const Scope& s, const std::vector<Output>& state) {
        const Output all = s.op("Sum", {state[0], s.constant(Tensor::of<int32_t>({0}))});
        return s.op("Less", {all, limit});
      },
      [&](const Scope& s, const std::vector<Output>& state) {
        const Output step = s.op("ReadVariableOp", {t.v}, {{"dtype", DType::kFloat32}});
        return std::vector{s.op("AddV2", {state[0], step})};
      });
  INFO((t.scope.ok() ? "" : t.scope.status().error().str()));
  REQUIRE(loop.size() == 1);
  CHECK(t.frozen_value({}, loop[0]).identical(Tensor::of<float>({2, 4, 6})));
  t.check_same({}, loop[0]);
  const Output p = t.placeholder(DType::kBool, {}, "p");
  const auto branch = cond(
      t.scope, p,
      [&](const Scope& s) {
        return std::vector{s.op("ReadVariableOp", {t.v}, {{"dtype", DType::kFloat32}})};
      },
      [&](const Scope&) { return std::vector{start}; });
  REQUIRE(branch.size() == 1);
  t.check_same({{p, Tensor::scalar(true)}}, branch[0]);
  t.check_same({{p, Tensor::scalar(false)}}, branch[0]);
}

TEST_CASE("a loaded model is frozen from a snapshot of its container") {
  const SampleModel sample;
  Frozen t;
  auto model = load_saved_model(*t.engine, sample.folder());
  REQUIRE(model.ok());
  const auto snapshot = t.engine->snapshot(model->container()).get();
  REQUIRE(snapshot.ok());
  const Output y = model->signatures().at("serving_default").outputs.at("y").output;
  const auto bytes = freeze_graph(model->graph(), {y}, snapshot->variables);
  REQUIRE(bytes.ok());
  TestEngine other;
  REQUIRE(from_graph_def(*bytes, other.graph).ok());
  CHECK_FALSE(other.graph.find("restore"));
  CHECK(other.value({{*other.graph.output("x:0"), Tensor::of<float>({2})}}, *other.graph.output(y.name()))
            .identical(Tensor::of<float>({6})));
}

TEST_CASE("a frozen graph has later forms of ops that TensorFlow loads from old graphs alone") {
  TestEngine t;
  const Status added = from_graph_def(R"(
node { name: 'c' op: 'Const' attr { key: 'dtype' value { type: DT_FLOAT } }
       attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape { dim { size: 3 } } float_val: 1 float_val: 3
                                            float_val: 2 } } } }
node { name: 'after' op: 'NoOp' }
node { name: 'y' op: 'TopK' input: 'c' input: '^after' attr { key: 'k' value { i: 2 } }
       attr { key: 'T' value { type: DT_FLOAT } } }
node { name: 'z' op: 'ApproxTopK' input: 'c' attr { key: 'k' value { i: 1 } } attr { key: 'T' value { type: DT_FLOAT } } }
node { name: 'shape' op: 'Const' attr { key: 'dtype' value { type: DT_INT32 } }
       attr { key: 'value' value { tensor { dtype: DT_INT32 tensor_shape { dim { size: 1 } } int_val: 2 } } } }
node { name: 'p' op: 'RandomPoisson' input: 'shape' input: 'c' attr { key: 'S' value { type: DT_INT32 } }
       attr { key: 'dtype' value { type: DT_FLOAT } } attr { key: 'seed' value { i: 3 } } }
)",
                                      t.graph);
  INFO((added.ok() ? "" : added.error().str()));
  REQUIRE(added.ok());
  std::vector<Output> outputs;
  for (const char* name : {"y:0", "y:1", "z:0", "p:0"}) outputs.push_back(*t.graph.output(name));
  const auto bytes = freeze_graph(t.graph, outputs, {});
  REQUIRE(bytes.ok());
  proto::GraphDef def;
  REQUIRE(def.ParseFromString(*bytes));
  for (const proto::NodeDef& node : def.node()) {
    CHECK(node.op() != "TopK");
    CHECK(node.op() != "RandomPoisson");
  }
  TestEngine other;
  REQUIRE(from_graph_def(*bytes, other.graph).ok());
  for (const Output& o : outputs) CHECK(other.value({}, *other.graph.output(o.name())).identical(t.value({}, o)));
}

TEST_CASE("a frozen graph gives iterators their datasets by the op that TensorFlow has") {
  TestEngine t;
  const Status added = from_graph_def(R"(
node { name: 'c' op: 'Const' attr { key: 'dtype' value { type: DT_FLOAT } }
       attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape { } float_val: 3 } } } }
node { name: 'one' op: 'TensorDataset' input: 'c' attr { key: 'Toutput_types' value { list { type: DT_FLOAT } } }
       attr { key: 'output_shapes' value { list { shape { } } } } }
node { name: 'it' op: 'AnonymousIteratorV3' attr { key: 'output_types' value { list { type: DT_FLOAT } } }
       attr { key: 'output_shapes' value { list { shape { } } } } }
node { name: 'init' op: 'MakeIterator' input: 'one' input: 'it' input: '^c' }
node { name: 'y' op: 'IteratorGetNext' input: 'it' input: '^init'
       attr { key: 'output_types' value { list { type: DT_FLOAT } } }
       attr { key: 'output_shapes' value { list { shape { } } } } }
)",
                                      t.graph);
  INFO((added.ok() ? "" : added.error().str()));
  REQUIRE(added.ok());
  const auto bytes = freeze_graph(t.graph, {*t.graph.output("y:0")}, {});
  REQUIRE(bytes.ok());
  proto::GraphDef def;
  REQUIRE(def.ParseFromString(*bytes));
  for (const proto::NodeDef& node : def.node()) {
    CHECK(node.op() != "_SetIteratorDataset");
    if (node.name() != "init") continue;
    CHECK(node.op() == "MakeIterator");
    REQUIRE(node.input_size() == 3);
    CHECK(node.input(0) == "one");
    CHECK(node.input(1) == "it");
    CHECK(node.input(2) == "^c");
  }
  TestEngine other;
  REQUIRE(from_graph_def(*bytes, other.graph).ok());
  CHECK(other.value({}, *other.graph.output("y:0")).identical(Tensor::scalar(3.f)));
}

TEST_CASE("a frozen graph has convolutions of groups in functions to compile") {
  Frozen t;
  const auto numbers = [](const Shape& shape) {
    Tensor out = *Tensor::make(DType::kFloat32, shape);
    for (int64_t i = 0; i < out.elements(); ++i) out.mutable_data<float>()[i] = static_cast<float>(i * 7 % 11 - 5);
    return out;
  };
  const Output x = t.placeholder(DType::kFloat32, {2, 4, 4, 4}, "x"), w = t.scope.constant(numbers({3, 3, 2, 6}));
  const Attrs attrs{{"strides", std::vector<int64_t>{1, 1, 1, 1}}, {"padding", std::string("SAME")}};
  const Output y = t.scope.op("Conv2D", {x, w}, attrs);
  const Output gw = t.scope.op("Conv2DBackpropFilter", {x, t.scope.op("Shape", {w}), y}, attrs);
  const Output gx = t.scope.op("Conv2DBackpropInput", {t.scope.op("Shape", {x}), w, y}, attrs);
  REQUIRE(t.scope.ok());
  const auto bytes = freeze_graph(t.graph, {gw, gx}, {});
  REQUIRE(bytes.ok());
  proto::GraphDef def;
  REQUIRE(def.ParseFromString(*bytes));
  CHECK(def.library().function_size() == 3);
  for (const proto::NodeDef& node : def.node()) CHECK_FALSE(node.op().starts_with("Conv2D"));
  for (const proto::FunctionDef& f : def.library().function()) {
    REQUIRE(f.attr_size() == 1);
    CHECK(f.attr(0).key() == "_XlaMustCompile");
  }
  TestEngine other;
  REQUIRE(from_graph_def(*bytes, other.graph).ok());
  const Tensor value = numbers({2, 4, 4, 4});
  for (const Output& o : {y, gw, gx})
    CHECK(other.value({{*other.graph.output("x:0"), value}}, *other.graph.output(o.name()))
              .identical(t.value({{x, value}}, o)));
}

TEST_CASE("a frozen graph says nothing that held for the whole graph alone") {
  TestEngine t;
  const Status added = from_graph_def(R"(
node { name: 'other' op: 'NoOp' }
node { name: 'c' op: 'Const' attr { key: 'dtype' value { type: DT_FLOAT } }
       attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape { } float_val: 3 } } }
       attr { key: '_class' value { list { s: 'loc:@other' } } }
       attr { key: '_output_shapes' value { list { shape { dim { size: 7 } } } } } }
node { name: 'one' op: 'TensorDataset' input: 'c' attr { key: 'Toutput_types' value { list { type: DT_FLOAT } } }
       attr { key: 'output_shapes' value { list { shape { } } } } }
node { name: 'map' op: 'MapDataset' input: 'one' attr { key: 'f' value { func { name: 'twice' } } }
       attr { key: 'Targuments' value { list { } } } attr { key: 'output_types' value { list { type: DT_FLOAT } } }
       attr { key: 'output_shapes' value { list { shape { } } } } }
node { name: 'y' op: 'DatasetToSingleElement' input: 'map'
       attr { key: 'output_types' value { list { type: DT_FLOAT } } }
       attr { key: 'output_shapes' value { list { shape { } } } } }
library { function {
  signature { name: 'twice' input_arg { name: 'a' type: DT_FLOAT } output_arg { name: 'b' type: DT_FLOAT } }
  node_def { name: 'sum' op: 'AddV2' input: 'a' input: 'a' attr { key: 'T' value { type: DT_FLOAT } } }
  ret { key: 'b' value: 'sum:z:0' } } }
)",
                                      t.graph);
  INFO((added.ok() ? "" : added.error().str()));
  REQUIRE(added.ok());
  const auto bytes = freeze_graph(t.graph, {*t.graph.output("y:0")}, {});
  REQUIRE(bytes.ok());
  proto::GraphDef def;
  REQUIRE(def.ParseFromString(*bytes));
  REQUIRE(def.library().function_size() == 1);
  CHECK(def.library().function(0).signature().name() == "twice");
  for (const proto::NodeDef& node : def.node())
    for (const proto::AttrEntry& attr : node.attr()) {
      INFO(node.name() << " " << attr.key());
      CHECK_FALSE(attr.key().starts_with("_"));
      if (attr.key() == "f") CHECK(attr.value().func().name() == "twice");
    }
  TestEngine other;
  REQUIRE(from_graph_def(*bytes, other.graph).ok());
  CHECK(other.value({}, *other.graph.output("y:0")).identical(Tensor::scalar(6.f)));
}

TEST_CASE("what cannot be frozen is an error with node and values") {
  Frozen t;
  const Output r = t.read();
  const auto error = [&](const std::vector<Output>& outputs, const std::map<std::string, Tensor>& values) {
    const auto bytes = freeze_graph(t.graph, outputs, values);
    REQUIRE_FALSE(bytes.ok());
    return bytes.error();
  };
  CHECK(error({}, {}).code == Code::kInvalidArgument);
  CHECK(error({r}, {}).code == Code::kNotFound);
  CHECK(error({r}, {}).node == "v");
  CHECK_THAT(error({r}, {{"v", f(1)}}).message, Contains("[]") && Contains("[3]"));
  CHECK_THAT(error({r}, {{"v", Tensor::of<int32_t>({1, 2, 3})}}).message, Contains("int32"));
  const Node* add = t.scope.named("add").node(
      "AssignAddVariableOp", {t.v, t.scope.constant(Tensor::of<float>({1, 1, 1}))}, {{"dtype", DType::kFloat32}});
  const Output after = t.scope.after({add}).op("ReadVariableOp", {t.v}, {{"dtype", DType::kFloat32}});
  const Error update = error({after}, {{"v", Tensor::of<float>({1, 2, 3})}});
  CHECK(update.node == "add");
  CHECK_THAT(update.message, Contains("'v'"));
}
