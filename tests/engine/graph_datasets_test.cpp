// SPDX-License-Identifier: Apache-2.0
// Graphs with tf.data pipelines through Session: functions that are called for elements, what iterators do with them,
// and how all of it ends: errors, cancelled steps, deadlines, engines that go while a function runs.
#include <thread>

#include "tests/engine/fixtures.h"
#include "troupe/graph_def.h"

using namespace troupe;
using Catch::Contains;

namespace {

std::string list_of_type(const std::string& attr, const std::string& type) {
  return "attr { key: '" + attr + "' value { list { type: " + type + " } } } ";
}
const std::string kScalars =
    list_of_type("output_types", "DT_INT64") + "attr { key: 'output_shapes' value { list { shape { } } } } ";
std::string named_function(const std::string& attr, const std::string& name) {
  return "attr { key: '" + attr + "' value { func { name: '" + name + "' } } } ";
}
std::string type_attr_of(const std::string& attr, const std::string& type = "DT_INT64") {
  return "attr { key: '" + attr + "' value { type: " + type + " } } ";
}
/// A node in a graph ("node") or in a function ("node_def"); inputs are divided by spaces.
std::string text_node(const std::string& kind, const std::string& name, const std::string& op, std::string inputs,
                      const std::string& attrs = "") {
  std::string out = kind + " { name: '" + name + "' op: '" + op + "' ";
  for (inputs += ' '; inputs.size() > 1; inputs.erase(0, inputs.find(' ') + 1))
    out += "input: '" + inputs.substr(0, inputs.find(' ')) + "' ";
  return out + attrs + "} ";
}
std::string int_constant(const std::string& kind, const std::string& name, int64_t value) {
  return text_node(kind, name, "Const", "",
                   type_attr_of("dtype") +
                       "attr { key: 'value' value { tensor { dtype: DT_INT64 tensor_shape { } int64_val: " +
                       std::to_string(value) + " } } } ");
}
/// A function of one int64, and of another resource where `captured`; `nodes` make `ret`.
std::string int_function(const std::string& name, const std::string& nodes, const std::string& ret,
                         bool captured = false, const std::string& out = "DT_INT64") {
  return "function { signature { name: '" + name + "' input_arg { name: 'x' type: DT_INT64 } " +
         (captured ? "input_arg { name: 'r' type: DT_RESOURCE } " : "") + "output_arg { name: 'y' type: " + out +
         " } } " + nodes + "ret { key: 'y' value: '" + ret + "' } } ";
}
const std::string kSquare =
    int_function("square", text_node("node_def", "m", "Mul", "x x", type_attr_of("T")), "m:z:0");
/// Takes an element of a queue for each of the dataset's.
const std::string kTake =
    int_function("take", text_node("node_def", "d", "QueueDequeueV2", "r", list_of_type("component_types", "DT_INT64")),
                 "d:components:0", true);
/// 10 / x, an error for 0.
const std::string kDivide = int_function(
    "divide",
    int_constant("node_def", "ten", 10) + text_node("node_def", "q", "Div", "ten:output:0 x", type_attr_of("T")),
    "q:z:0");

std::string range_nodes(int64_t n) {
  return int_constant("node", "zero", 0) + int_constant("node", "one", 1) + int_constant("node", "n", n) +
         text_node("node", "range", "RangeDataset", "zero n one", kScalars);
}
std::string map_nodes(const std::string& f) {
  return text_node("node", "map", "MapDataset", "range",
                   kScalars + named_function("f", f) + "attr { key: 'Targuments' value { list { } } } ");
}
const std::string kTaken =
    text_node("node", "q", "FIFOQueueV2", "", list_of_type("component_types", "DT_INT64")) +
    text_node("node", "map", "MapDataset", "range q",
              kScalars + named_function("f", "take") + list_of_type("Targuments", "DT_RESOURCE"));
std::string iterator_nodes(const std::string& dataset) {
  return text_node(
             "node", "it", "IteratorV2", "",
             kScalars + "attr { key: 'shared_name' value { s: '' } } attr { key: 'container' value { s: '' } } ") +
         text_node("node", "init", "MakeIterator", dataset + " it") +
         text_node("node", "next", "IteratorGetNext", "it", kScalars);
}

struct Pipelines : TestEngine {
  using TestEngine::TestEngine;
  void load(const std::string& nodes, const std::string& functions) {
    const Status status = try_load(nodes, functions);
    INFO((status.ok() ? "" : status.error().str()));
    REQUIRE(status.ok());
  }
  Status try_load(const std::string& nodes, const std::string& functions) {
    return from_graph_def(nodes + "library { " + functions + "} ", graph);
  }
  Output out(const std::string& name) { return *graph.output(name); }
  RunResult next(const RunOptions& options = {}) { return session->run({out("next:0")}, options); }
  int64_t number() {
    auto result = next();
    INFO((result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    return (*result)[0].data<int64_t>()[0];
  }
  void init() {
    const RunResult result = session->run({graph.find("init")});
    INFO((result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
  }
};

}  // namespace

TEST_CASE("an iterator calls the function of a map for each element, and begins again when it is initialized") {
  Pipelines p;
  p.load(range_nodes(3) + map_nodes("square") + iterator_nodes("map"), kSquare);
  refused(p.next(), Code::kFailedPrecondition, "its initializer, a MakeIterator, must run first");
  for (int pass = 0; pass < 2; ++pass) {
    p.init();
    CHECK(p.number() == 0);
    CHECK(p.number() == 1);
  }
  CHECK(p.number() == 4);
  refused(p.next(), Code::kOutOfRange);
  refused(p.next(), Code::kOutOfRange);
  p.init();
  CHECK(p.number() == 0);
}

TEST_CASE("an error of a function names both nodes and costs one element") {
  Pipelines p;
  p.load(range_nodes(3) + map_nodes("divide") + iterator_nodes("map"), kDivide);
  p.init();
  const RunResult failed = p.next();
  refused(failed, Code::kInvalidArgument, "f of MapDataset 'map': Div 'call/q'");
  CHECK(failed.error().node == "next");
  CHECK(p.number() == 10);
  CHECK(p.number() == 5);
  refused(p.next(), Code::kOutOfRange);
}

TEST_CASE("two sessions of an engine share an iterator, and those of two engines do not") {
  Pipelines p, q;
  for (Pipelines* each : {&p, &q}) {
    each->load(range_nodes(9) + map_nodes("square") + iterator_nodes("map"), kSquare);
    each->init();
  }
  Session other(*p.engine, p.graph);
  CHECK(p.number() == 0);
  CHECK((*other.run({p.out("next:0")}))[0].data<int64_t>()[0] == 1);
  CHECK(p.number() == 4);
  CHECK(q.number() == 0);
}

TEST_CASE("a step that waits for a function is cancelled, and meets its deadline") {
  Pipelines p;
  p.load(range_nodes(3) + kTaken + iterator_nodes("map"), kTake);
  p.init();
  RunOptions options;
  options.deadline = std::chrono::milliseconds(20);
  refused(p.next(options), Code::kDeadlineExceeded);
  options.deadline = {};
  options.cancel = CancelToken();
  auto waiting = p.session->run_future({}, {p.out("next:0")}, {}, options);
  options.cancel->cancel();
  refused(waiting.get(), Code::kCancelled);
  p.init();  // with a function that waits still
  refused(
      [&] {
        RunOptions short_of;
        short_of.deadline = std::chrono::milliseconds(20);
        return p.next(short_of);
      }(),
      Code::kDeadlineExceeded);
}

TEST_CASE("an engine ends while functions wait, and so does a session") {
  for (const bool session_first : {true, false}) {
    Pipelines p;
    p.load(range_nodes(3) + kTaken + iterator_nodes("map"), kTake);
    p.init();
    auto waiting = p.session->run_future({}, {p.out("next:0")});
    if (session_first) p.session.reset();
    p.engine.reset();
    CHECK_FALSE(waiting.get().ok());
    p.session.reset();
  }
}

TEST_CASE("a reduction stops when its step is cancelled") {
  Pipelines p;
  p.load(range_nodes(INT64_MAX) + text_node("node", "sum", "ReduceDataset", "range zero",
                                            kScalars + named_function("f", "add") + list_of_type("Tstate", "DT_INT64") +
                                                "attr { key: 'Targuments' value { list { } } } "),
         "function { signature { name: 'add' input_arg { name: 's' type: DT_INT64 } input_arg { name: 'x' type: "
         "DT_INT64 } output_arg { name: 'y' type: DT_INT64 } } " +
             text_node("node_def", "a", "AddV2", "s x", type_attr_of("T")) + "ret { key: 'y' value: 'a:z:0' } } ");
  RunOptions options;
  options.deadline = std::chrono::milliseconds(30);
  refused(p.session->run({p.out("sum:0")}, options), Code::kDeadlineExceeded);
  p.engine.reset();  // waits for nobody
}

TEST_CASE("a filter's function must give a bool, and a map's what the node says") {
  Pipelines p;
  p.load(range_nodes(2) +
             text_node(
                 "node", "map", "FilterDataset", "range",
                 kScalars + named_function("predicate", "square") + "attr { key: 'Targuments' value { list { } } } ") +
             iterator_nodes("map"),
         kSquare);
  p.init();
  refused(p.next(), Code::kInvalidArgument, "the predicate must give one scalar bool");
  Pipelines q;
  q.load(range_nodes(2) + map_nodes("text") + iterator_nodes("map"),
         int_function("text", text_node("node_def", "s", "AsString", "x", type_attr_of("T")), "s:output:0", false,
                      "DT_STRING"));
  q.init();
  refused(q.next(), Code::kInvalidArgument, "the function gave string[] as component 0, declared was int64[]");
}

TEST_CASE("functions that are not there, or have ops that are not known, are refused when the graph is read") {
  Pipelines p;
  Status missing = p.try_load(range_nodes(2) + map_nodes("nothing"), kSquare);
  REQUIRE_FALSE(missing.ok());
  CHECK_THAT(missing.error().message, Contains("function 'nothing' is not in the library"));
  CHECK(missing.error().node == "map");
  Pipelines q;
  Status unknown = q.try_load(range_nodes(2) + map_nodes("python"),
                              int_function("python", text_node("node_def", "e", "EagerPyFunc", "x"), "e:output:0"));
  REQUIRE_FALSE(unknown.ok());
  CHECK_THAT(unknown.error().message,
             Contains("in function 'python', EagerPyFunc 'e' is an op that is not known") && Contains("Python"));
}

TEST_CASE("what a dataset op is given must be a dataset, and its numbers must make sense") {
  const auto failing = [](const std::string& nodes, const std::string& what) {
    Pipelines p;
    p.load(range_nodes(4) + nodes + iterator_nodes("bad"), kSquare);
    const RunResult result = p.session->run({p.graph.find("init")});
    refused(result, Code::kInvalidArgument, what);
    CHECK(result.error().node == "bad");
  };
  failing(text_node("node", "o", "OptionalNone", "") + text_node("node", "bad", "TakeDataset", "o n", kScalars),
          "input_dataset must be a dataset");
  failing(int_constant("node", "size", 0) + text_node("node", "bad", "BatchDataset", "range size", kScalars),
          "batch_size must be at least 1, got 0");
  failing(int_constant("node", "size", -5) + text_node("node", "bad", "PrefetchDataset", "range size", kScalars),
          "buffer_size must be at least -1, got -5");
  failing(text_node("node", "bad", "ShardDataset", "range one n", kScalars),
          "index must be below num_shards, 1, got 4");
  failing(text_node("node", "bad", "RangeDataset", "zero n zero", kScalars), "step must not be 0");
}

TEST_CASE("a huge batch takes no more memory than there are elements") {
  Pipelines p;
  const std::string vectors = list_of_type("output_types", "DT_INT64") +
                              "attr { key: 'output_shapes' value { list { shape { dim { size: -1 } } } } } ";
  p.load(range_nodes(3) + int_constant("node", "size", INT64_MAX) +
             text_node("node", "b", "BatchDataset", "range size", vectors) +
             text_node(
                 "node", "it", "IteratorV2", "",
                 vectors + "attr { key: 'shared_name' value { s: '' } } attr { key: 'container' value { s: '' } } ") +
             text_node("node", "init", "MakeIterator", "b it") +
             text_node("node", "next", "IteratorGetNext", "it", vectors),
         kSquare);
  p.init();
  auto result = p.next();
  REQUIRE(result.ok());
  CHECK((*result)[0].elements() == 3);
}

TEST_CASE("an iterator without a name goes with the default container, and says so") {
  TestEngine t;
  const Attrs numbers = {{"output_types", std::vector{DType::kInt64}},
                         {"output_shapes", std::vector{PartialShape::scalar()}}};
  const auto number = [&](int64_t n) { return t.scope.constant(Tensor::scalar(n)); };
  const Output dataset = t.scope.op("RangeDataset", {number(0), number(3), number(1)}, numbers);
  const Output iterator = t.scope.op("AnonymousIteratorV3", {}, numbers);
  const Node* begin = t.scope.node("_SetIteratorDataset", {iterator, dataset});
  const Output next = t.scope.op("IteratorGetNext", {iterator}, numbers);
  REQUIRE(t.scope.ok());
  const RunResult begun = t.session->run({iterator}, {begin});
  REQUIRE(begun.ok());
  const Tensor handle = (*begun)[0];
  CHECK(t.value({{iterator, handle}}, next).data<int64_t>()[0] == 0);
  t.engine->reset_container("");
  CHECK(t.session->run({iterator}, {begin}).ok());  // another one, of the host that is there now
  refused(t.session->run({{iterator, handle}}, next), Code::kFailedPrecondition, "the default container was reset");
}
