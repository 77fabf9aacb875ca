// SPDX-License-Identifier: Apache-2.0
// Datasets that are nodes of a graph, whose nodes are on several tasks: they stay in the task where they are made, and
// are made where they are read.
#include "tests/actors/socket_cluster.h"
#include "tests/engine/fixtures.h"
#include "troupe/graph_def.h"

using namespace troupe;

namespace {

const std::string kFirst = "/job:worker/task:0/cpu:0", kSecond = "/job:worker/task:1/cpu:0";
const std::string kScalars =
    "attr { key: 'output_types' value { list { type: DT_INT64 } } } attr { key: 'output_shapes' value { list { shape { "
    "} } } } ";

/// A node of a graph or of a function; inputs are divided by spaces.
std::string text(const std::string& kind, const std::string& name, const std::string& op, std::string inputs,
                 const std::string& device = "", const std::string& attrs = "") {
  std::string out = fmt::format("{} {{ name: '{}' op: '{}' device: '{}' ", kind, name, op, device);
  for (inputs += ' '; inputs.size() > 1; inputs.erase(0, inputs.find(' ') + 1))
    out += "input: '" + inputs.substr(0, inputs.find(' ')) + "' ";
  return out + attrs + "} ";
}
std::string node(const std::string& name, const std::string& op, const std::string& inputs,
                 const std::string& device = "", const std::string& attrs = "") {
  return text("node", name, op, inputs, device, attrs);
}
std::string number(const std::string& name, int value, const std::string& device) {
  return node(name, "Const", "", device,
              fmt::format("attr {{ key: 'dtype' value {{ type: DT_INT64 }} }} attr {{ key: 'value' value {{ tensor {{ "
                          "dtype: DT_INT64 tensor_shape {{ }} int64_val: {} }} }} }} ",
                          value));
}
/// The squares of 0 to 3, each device for itself.
std::string squares(const std::string& range_on, const std::string& map_on) {
  return number("zero", 0, range_on) + number("one", 1, range_on) + number("n", 4, range_on) +
         node("range", "RangeDataset", "zero n one", range_on, kScalars) +
         node("squares", "MapDataset", "range", map_on,
              kScalars +
                  "attr { key: 'f' value { func { name: 'square' } } } attr { key: 'Targuments' value { list { "
                  "} } } ");
}
std::string iterator(const std::string& on, const std::string& dataset = "squares", const std::string& name = "it") {
  return node(name, "IteratorV2", "", on,
              kScalars + "attr { key: 'shared_name' value { s: '" + name +
                  "' } } attr { key: 'container' value { s: "
                  "'' } } ") +
         node(name + "/init", "MakeIterator", dataset + " " + name) +
         node(name + "/next", "IteratorGetNext", name, "", kScalars);
}
/// Squares its argument.
const std::string kSquare =
    "library { function { signature { name: 'square' input_arg { name: 'x' type: DT_INT64 } output_arg { name: 'y' "
    "type: "
    "DT_INT64 } } " +
    text("node_def", "m", "Mul", "x x", "", "attr { key: 'T' value { type: DT_INT64 } } ") +
    "ret { key: 'y' value: 'm:z:0' } } } ";

/// A client of two tasks, with a graph that it reads from text.
struct Loaded {
  explicit Loaded(Engine& engine, const std::string& nodes, SessionOptions options = {}) : graph(engine.ops()) {
    const Status read = from_graph_def(nodes, graph);
    INFO((read.ok() ? "" : read.error().str()));
    REQUIRE(read.ok());
    session = std::make_unique<Session>(engine, graph, options);
  }
  Status run(const std::string& target) { return session->run({graph.find(target)}).status(); }
  int64_t number(const std::string& output, const RunOptions& options = {}) {
    const auto result = session->run({*graph.output(output)}, options);
    INFO((result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    return (*result)[0].data<int64_t>()[0];
  }
  Graph graph;
  std::unique_ptr<Session> session;
};

void gives_squares(Loaded& loaded, const std::string& iterator = "it") {
  const Status begun = loaded.run(iterator + "/init");
  INFO((begun.ok() ? "" : begun.error().str()));
  REQUIRE(begun.ok());
  for (const int64_t expected : {0, 1, 4, 9}) CHECK(loaded.number(iterator + "/next") == expected);
  refused(loaded.session->run({*loaded.graph.output(iterator + "/next")}), Code::kOutOfRange, "end of the dataset");
}
void refused_at(const Status& status, const std::string& node, std::string_view says) {
  REQUIRE_FALSE(status.ok());
  INFO(status.error().str());
  CHECK(status.error().code == Code::kInvalidArgument);
  CHECK(status.error().node == node);
  CHECK(status.error().message.find(says) != std::string::npos);
}

}  // namespace

TEST_CASE("a dataset is made where its iterator is, unless its nodes ask to be elsewhere") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  // All on one task; nowhere but the iterator; a part of it; a device of any task.
  const std::string places[][3] = {{kSecond, kSecond, kSecond}, {"", "", kSecond}, {kSecond, "", kSecond},
                                   {"", kSecond, kSecond},      {"", "", ""},      {"/cpu:0", "/cpu:0", kFirst},
                                   {"", "/job:worker", kSecond}};
  for (const auto& [range, map, it] : places) {
    CAPTURE(range, map, it);
    Loaded loaded(*engine, squares(range, map) + iterator(it) + kSquare);
    gives_squares(loaded);
    engine->reset_container("");
  }
}

TEST_CASE("a dataset that would have to go from task to task is an error of its reader") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  const auto fault = [](int on, int reads) {
    return fmt::format(
        "is on /job:worker/replica:0/task:{} and reads 'squares', which is on /job:worker/replica:0/task:{}: "
        "a dataset does not go from task to task",
        on, reads);
  };
  refused_at(Loaded(*engine, squares(kFirst, kFirst) + iterator(kSecond) + kSquare).run("it/init"), "it/init",
             fault(1, 0));
  refused_at(Loaded(*engine, squares(kFirst, "") + iterator(kSecond) + kSquare).run("it/init"), "it/init", fault(1, 0));
  // One for two iterators of two tasks, in one step; one after the other is right.
  Loaded both(*engine,
              squares("", "") + iterator(kFirst, "squares", "a") + iterator(kSecond, "squares", "b") + kSquare);
  refused_at(both.session->run({both.graph.find("a/init"), both.graph.find("b/init")}).status(), "a/init", fault(0, 1));
  gives_squares(both, "a");
  gives_squares(both, "b");
  // Names do not count where placement is soft.
  Loaded soft(*engine, squares(kFirst, kFirst) + iterator(kSecond) + kSquare, {.soft_placement = true});
  gives_squares(soft);
}

TEST_CASE("what reads a dataset runs where that is made") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  for (const std::string& on : {kFirst, kSecond, std::string()}) {
    CAPTURE(on);
    Loaded loaded(*engine, number("zero", 3, kSecond) +
                               node("made", "TensorDataset", "zero", kSecond,
                                    "attr { key: 'Toutput_types' value { list { type: DT_INT64 } "
                                    "} } attr { key: 'output_shapes' value { list { shape { } } } } ") +
                               node("same", "Identity", "made", "", "attr { key: 'T' value { type: DT_VARIANT } } ") +
                               node("only", "DatasetToSingleElement", "same", on, kScalars));
    CHECK(loaded.number("only:0") == 3);
  }
}

TEST_CASE("scattered nodes leave datasets and their iterators together") {
  SocketCluster tasks(2);
  for (const uint64_t seed : {1u, 2u, 3u, 4u, 5u}) {
    tasks.options.cluster.scatter = seed;
    const auto client = tasks.client();
    Loaded loaded(*client, squares(kFirst, kSecond) + iterator(kSecond) + kSquare);
    gives_squares(loaded);
  }
}

TEST_CASE("a lock of a mutex is taken where the mutex is") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  Loaded loaded(*engine, node("mutex", "MutexV2", "", kSecond) + node("lock", "MutexLock", "mutex") +
                             node("unlock", "ConsumeMutexLock", "lock", kFirst));
  for (int i = 0; i < 3; ++i) CHECK(loaded.run("unlock").ok());
}

TEST_CASE("a value that cannot be sent is an error of the node whose output it is") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  Graph graph(engine->ops());
  const Scope scope(graph), first = scope.device(kFirst), second = scope.device(kSecond);
  const Output rows = first.op("Fill", {scope.constant(Tensor::of<int32_t>({70'000, 1})), scope.constant(1.0f)});
  const Output list = first.named("rows").op("TensorListFromTensor", {rows, scope.constant(Tensor::of<int32_t>({1}))},
                                             {{"element_dtype", DType::kFloat32}, {"shape_type", DType::kInt32}});
  const Output length = second.op("TensorListLength", {second.op("Identity", {list})});
  REQUIRE(scope.ok());
  Session session(*engine, graph);
  const auto result = session.run({length});
  refused(result, Code::kResourceExhausted, "cannot be sent to /job:worker/replica:0/task:1: ");
  CHECK(result.error().node == "rows");
  CHECK(result.error().op == "TensorListFromTensor");
  CHECK(result.error().device == "/job:worker/replica:0/task:0/device:cpu:0");
}
