// SPDX-License-Identifier: Apache-2.0
// SavedModels written by export_saved_model(): what they hold, that load_saved_model() reads them back, and that what
// cannot be written leaves nothing.
#include <filesystem>
#include <thread>

#include "graph/graph_def/meta_graph.h"
#include "io/checkpoint_reader.h"
#include "io/whole_file.h"
#include "tests/engine/fixtures.h"
#include "tests/graph/saved_models.h"
#include "troupe/graph_def.h"
#include "troupe/ops.h"
#include "troupe/optimizers.h"
#include "troupe/saved_model.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;

namespace {

/// y = x w + b with its loss and train op, of which a served model needs little.
struct Line {
  explicit Line(Engine& engine) : engine(engine), graph(engine.ops()), session(engine, graph) {
    const Scope scope(graph), near = scope.device("/cpu:0");
    x = ops::Placeholder(scope.named("x"), DType::kFloat32, {.shape = {-1, 2}});
    labels = ops::Placeholder(scope.named("labels"), DType::kFloat32, {.shape = {-1, 1}});
    y = nn::dense(near, model, x, 1, "line");
    const Output error = y - labels;
    loss = ops::Mean(scope, error * error, scope.constant(Tensor::of<int32_t>({0, 1})));
    train = nn::minimize(scope, model, nn::adam(nn::constant_rate(0.1f)), loss);
    REQUIRE(scope.status().ok());
    REQUIRE(session.run(model.initializers()).ok());
    for (int i = 0; i < 3; ++i)
      REQUIRE(session.run({{x, kX}, {labels, Tensor::of<float>({1, 2}, {2, 1})}}, {}, {train}).ok());
  }
  std::map<std::string, ModelSignature> signatures() const {
    return {{"serving_default", {.inputs = {{"in", {x}}}, .outputs = {{"out", {y}}}}}};
  }
  Status write(const std::string& folder, const ExportOptions& options = {}) const {
    const auto snapshot = engine.snapshot().get();
    REQUIRE(snapshot.ok());
    return export_saved_model(folder, graph, signatures(), *snapshot, options);
  }

  const Tensor kX = Tensor::of<float>({1, 2, 3, 4}, {2, 2});
  Engine& engine;
  Graph graph;
  Session session;
  nn::Variables model;
  Output x, labels, y, loss;
  const Node* train = nullptr;
};

void check_failed(const Status& status, Code code, const std::vector<std::string>& parts) {
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().code == code);
  for (const std::string& part : parts) CHECK_THAT(status.error().str(), Contains(part));
}

}  // namespace

TEST_CASE("an exported graph gives the same when it is loaded") {
  const TestEngine t;
  const TemporaryDirectory dir;
  Line line(*t.engine);
  const Status written = line.write(dir.file("new/out"));
  INFO((written.ok() ? "" : written.error().str()));
  REQUIRE(written.ok());
  CHECK(std::distance(std::filesystem::directory_iterator(dir.file("new")), {}) == 1);
  auto wanted = line.session.run({{line.x, line.kX}}, {line.y});
  REQUIRE(wanted.ok());
  const auto checkpoint = CheckpointReader::open({}, dir.file("new/out/variables/variables"));
  REQUIRE(checkpoint.ok());
  CHECK(checkpoint->entries().size() == 2);  // no slots of the optimizer
  // By another engine, and once more from what that has.
  const TestEngine other;
  auto model = load_saved_model(*other.engine, dir.file("new/out"));
  INFO((model.ok() ? "" : model.error().str()));
  REQUIRE(model.ok());
  CHECK(model->tags() == std::vector<std::string>{"serve"});
  const ModelSignature& signature = model->signatures().at("serving_default");
  CHECK(signature.method == "tensorflow/serving/predict");
  CHECK(signature.inputs.at("in").shape == PartialShape{-1, 2});
  for (int id = 0; id < model->graph().size(); ++id) CHECK(model->graph().node(id).device().empty());
  auto out = model->run("serving_default", {{"in", line.kX}});
  REQUIRE(out.ok());
  CHECK(out->at("out").identical((*wanted)[0]));
  const auto snapshot = other.engine->snapshot(model->container()).get();
  REQUIRE(snapshot.ok());
  REQUIRE(
      export_saved_model(dir.file("again"), model->graph(), model->signatures(), *snapshot, {.tags = {"a", "b"}}).ok());
  auto again = load_saved_model(*other.engine, dir.file("again"), {.tags = {"b", "a"}});
  INFO((again.ok() ? "" : again.error().str()));
  REQUIRE(again.ok());
  CHECK(again->run("serving_default", {{"in", line.kX}})->at("out").identical((*wanted)[0]));
}

TEST_CASE("a model that is loaded frozen answers alike, and signatures that write variables are not frozen") {
  const TestEngine t;
  const TemporaryDirectory dir;
  Line line(*t.engine);
  const Scope scope(line.graph);
  const Output calls = line.model.handle(scope, "calls", Shape{}, nn::zeros(), false, DType::kInt32);
  const Node* const add = scope.node("AssignAddVariableOp", {calls, scope.constant(1)});
  const Output count =
      scope.after(std::vector<const Node*>{add}).op("ReadVariableOp", {calls}, {{"dtype", DType::kInt32}});
  REQUIRE(scope.status().ok());
  REQUIRE(line.session.run(line.model.initializers()).ok());
  auto signatures = line.signatures();
  signatures["count"] = {.inputs = {}, .outputs = {{"calls", {count}}}};
  // An input that no output needs.
  signatures["serving_default"].inputs["unused"] = {line.labels};
  const auto snapshot = t.engine->snapshot().get();
  REQUIRE(snapshot.ok());
  const Status written = export_saved_model(dir.file("out"), line.graph, signatures, *snapshot);
  INFO((written.ok() ? "" : written.error().str()));
  REQUIRE(written.ok());
  const auto wanted = line.session.run({{line.x, line.kX}}, {line.y});
  REQUIRE(wanted.ok());

  const auto model = load_saved_model(*t.engine, dir.file("out"), {.freeze = true});
  INFO((model.ok() ? "" : model.error().str()));
  REQUIRE(model.ok());
  const std::map<std::string, Tensor> inputs = {{"in", line.kX}, {"unused", Tensor::of<float>({1, 2}, {2, 1})}};
  const auto check_out = [&] {
    const auto out = model->run("serving_default", inputs);
    INFO((out.ok() ? "" : out.error().str()));
    REQUIRE(out.ok());
    CHECK(out->at("out").identical((*wanted)[0]));
  };
  check_out();
  for (int i = 1; i <= 3; ++i) CHECK(model->run("count", {})->at("calls").identical(Tensor::scalar(i)));
  // The frozen signature keeps the values that the model was loaded with.
  Snapshot other = t.engine->snapshot(model->container()).get().value();
  other.variables.at("line/bias") = Tensor::of<float>({100}, {1});
  REQUIRE(t.engine->restore(other, model->container()).ok());
  check_out();
  CHECK(!model->run("serving_default", {{"in", line.kX}}).ok());
  CHECK(!model->run("serving_default", {{"in", Tensor::of<float>({1, 2, 3}, {1, 3})}, {"unused", inputs.at("unused")}})
             .ok());
}

TEST_CASE("an exported model initialises itself with its assets") {
  const TestEngine t;
  const SampleModel sample;
  const auto model = load_saved_model(*t.engine, sample.folder());
  REQUIRE(model.ok());
  const auto snapshot = t.engine->snapshot(model->container()).get();
  REQUIRE(snapshot.ok());
  sample.write("other.txt", "three");
  const Graph& graph = model->graph();
  const Status written = export_saved_model(
      sample.file("out"), graph, model->signatures(), *snapshot,
      {.initializer = graph.output("init")->node, .assets = {{*graph.output("path"), sample.file("other.txt")}}});
  INFO((written.ok() ? "" : written.error().str()));
  REQUIRE(written.ok());
  const auto loaded = load_saved_model(*t.engine, sample.file("out"));
  INFO((loaded.ok() ? "" : loaded.error().str()));
  REQUIRE(loaded.ok());
  CHECK(loaded->run("vocabulary", {})->at("text").identical(Tensor::scalar<std::string>("three")));
  CHECK(loaded->run("serving_default", {{"x", Tensor::of<float>({2})}})->at("y").identical(Tensor::of<float>({6})));
}

TEST_CASE("a model without variables has no checkpoint, and an input may have a default") {
  const TestEngine t;
  const TemporaryDirectory dir;
  Graph graph(t.engine->ops());
  const Scope scope(graph);
  const Output x = ops::Placeholder(scope.named("x"), DType::kFloat32, {.shape = {}}),
               by = ops::Placeholder(scope.named("save"), DType::kFloat32);
  std::filesystem::create_directory(dir.file("out"));
  REQUIRE(export_saved_model(dir.file("out"), graph,
                             {{"f",
                               {.inputs = {{"x", {x}}, {"by", {.output = by, .value = Tensor::scalar(4.f)}}},
                                .outputs = {{"y", {x * by}}},
                                .method = "mine"}}},
                             {})
              .ok());
  CHECK_FALSE(std::filesystem::exists(dir.file("out/variables")));
  const auto model = load_saved_model(*t.engine, dir.file("out"));
  REQUIRE(model.ok());
  CHECK(model->signatures().at("f").method == "mine");
  CHECK(model->run("f", {{"x", Tensor::scalar(3.f)}})->at("y").identical(Tensor::scalar(12.f)));
}

TEST_CASE("of exports into one folder at once one is there, and the others say so") {
  const TestEngine t;
  const TemporaryDirectory dir;
  const Line line(*t.engine);
  const auto snapshot = t.engine->snapshot().get();
  REQUIRE(snapshot.ok());
  for (int round = 0; round < 10; ++round) {
    const std::string folder = dir.file(fmt::format("out{}", round));
    std::vector<Status> done(4);
    std::vector<std::thread> exports;
    for (Status& status : done)
      exports.emplace_back([&] { status = export_saved_model(folder, line.graph, line.signatures(), *snapshot); });
    for (std::thread& one : exports) one.join();
    CHECK(std::ranges::count_if(done, [](const Status& status) { return status.ok(); }) == 1);
    for (const Status& status : done)
      if (!status.ok()) check_failed(status, Code::kAlreadyExists, {folder, "is there already"});
    CHECK(load_saved_model(*t.engine, folder).ok());
  }
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 10);
}

TEST_CASE("a loaded model is exported again with its initialiser and assets") {
  const TestEngine t;
  const SampleModel sample;
  const auto model = load_saved_model(*t.engine, sample.folder());
  REQUIRE(model.ok());
  const auto snapshot = t.engine->snapshot(model->container()).get();
  REQUIRE(snapshot.ok());
  const auto rest = model->export_options();
  INFO((rest.ok() ? "" : rest.error().str()));
  REQUIRE(rest.ok());
  CHECK(rest->tags == model->tags());
  CHECK(rest->initializer == model->graph().output("init")->node);
  REQUIRE(export_saved_model(sample.file("out"), model->graph(), model->signatures(), *snapshot, *rest).ok());
  const auto loaded = load_saved_model(*t.engine, sample.file("out"));
  REQUIRE(loaded.ok());
  CHECK(loaded->run("vocabulary", {})->at("text").identical(model->run("vocabulary", {})->at("text")));
  std::filesystem::remove_all(sample.folder());
  check_failed(model->export_options().status(), Code::kNotFound, {"words.txt"});
}

TEST_CASE("tables that must be filled are not exported without what fills them") {
  TestEngine t;
  const TemporaryDirectory dir;
  const std::string types =
      " attr { key: 'key_dtype' value { type: DT_STRING } } attr { key: 'value_dtype' value { type: DT_INT64 } }";
  const auto table = [&](const std::string& name) {
    return "node { name: '" + name + "' op: 'HashTableV2' attr { key: 'shared_name' value { s: 'words' } }" + types +
           " } ";
  };
  const Status added = from_graph_def(
      table("table") + table("again") + string_constant("keys", "k") +
          "node { name: 'size' op: 'LookupTableSizeV2' input: 'table' } "
          "node { name: 'values' op: 'StringToHashBucketFast' input: 'keys' attr { key: 'num_buckets' value { i: 9 } } "
          "} node { name: 'fill' op: 'InitializeTableV2' input: 'again' input: 'keys' input: 'values' "
          "attr { key: 'Tkey' value { type: DT_STRING } } attr { key: 'Tval' value { type: DT_INT64 } } } ",
      t.graph);
  INFO((added.ok() ? "" : added.error().str()));
  REQUIRE(added.ok());
  const auto write = [&](const ExportOptions& options) {
    return export_saved_model(dir.file("out"), t.graph, {{"f", {.outputs = {{"n", {*t.graph.output("size:0")}}}}}}, {},
                              options);
  };
  check_failed(write({}), Code::kInvalidArgument, {"table 'table'", "an initialiser"});
  CHECK_FALSE(std::filesystem::exists(dir.file("out")));
  REQUIRE(write({.initializer = t.graph.output("fill")->node}).ok());
  const auto model = load_saved_model(*t.engine, dir.file("out"));
  REQUIRE(model.ok());
  CHECK(model->run("f", {})->at("n").identical(Tensor::scalar<int64_t>(1)));
}

TEST_CASE("tables that a model's checkpoint fills are not exported empty") {
  TestEngine t;
  const TemporaryDirectory dir;
  const std::string types =
      " attr { key: 'Tin' value { type: DT_STRING } } attr { key: 'Tout' value { type: DT_INT64 } } ";
  const auto table = [](const std::string& name) {
    return "node { name: '" + name + "' op: 'MutableHashTableV2' attr { key: 'key_dtype' value { type: DT_STRING } }" +
           " attr { key: 'value_dtype' value { type: DT_INT64 } } } node { name: 'size_" + name +
           "' op: 'LookupTableSizeV2' input: '" + name + "' } ";
  };
  const Status added = from_graph_def(
      table("filled") + table("other") +
          "node { name: 'file' op: 'Placeholder' attr { key: 'dtype' value { type: DT_STRING } } } " +
          string_constant("names", "k") + string_constant("slices", "") +
          "node { name: 'read' op: 'RestoreV2' input: 'file' input: 'names' input: 'slices' "
          "attr { key: 'dtypes' value { list { type: DT_STRING } } } } "
          "node { name: 'keys' op: 'Identity' input: 'read' attr { key: 'T' value { type: DT_STRING } } } "
          "node { name: 'values' op: 'StringToHashBucketFast' input: 'keys' attr { key: 'num_buckets' value { i: 9 } } "
          "} "
          "node { name: 'fill' op: 'LookupTableImportV2' input: 'filled' input: 'keys' input: 'values' " +
          types + "} ",
      t.graph);
  INFO((added.ok() ? "" : added.error().str()));
  REQUIRE(added.ok());
  const auto write = [&](const std::string& name) {
    return export_saved_model(dir.file("out"), t.graph, {{"f", {.outputs = {{"n", {*t.graph.output(name)}}}}}}, {});
  };
  check_failed(write("size_filled:0"), Code::kUnimplemented, {"'filled'", "variables alone"});
  CHECK_FALSE(std::filesystem::exists(dir.file("out")));
  CHECK(write("size_other:0").ok());
}

TEST_CASE("ops that TensorFlow has not are not exported") {
  TestEngine t;
  const TemporaryDirectory dir;
  const std::string types = " attr { key: 'dtypes' value { list { type: DT_FLOAT } } } ";
  const Status added = from_graph_def(
      "node { name: 'staged' op: 'Unstage' attr { key: 'shared_name' value { s: 'area' } }" + types + "}", t.graph);
  INFO((added.ok() ? "" : added.error().str()));
  REQUIRE(added.ok());
  check_failed(
      export_saved_model(dir.file("out"), t.graph, {{"f", {.outputs = {{"x", {*t.graph.output("staged:0")}}}}}}, {}),
      Code::kUnimplemented, {"'staged", "_StagingArea", "TensorFlow has not"});
  CHECK_FALSE(std::filesystem::exists(dir.file("out")));
}

TEST_CASE("what cannot be exported is an error, and nothing is left") {
  const TestEngine t;
  const TemporaryDirectory dir;
  Line line(*t.engine);
  const auto snapshot = t.engine->snapshot().get();
  REQUIRE(snapshot.ok());
  const auto write = [&](const std::map<std::string, ModelSignature>& signatures, const ExportOptions& options = {}) {
    return export_saved_model(dir.file("out"), line.graph, signatures, *snapshot, options);
  };
  check_failed(write({}), Code::kInvalidArgument, {"without signatures"});
  check_failed(write({{"f", {.inputs = {{"x", {line.x}}}}}}), Code::kInvalidArgument, {"'f'", "no outputs"});
  check_failed(write({{"f", {.outputs = {{"y", {line.y}}}}}}), Code::kInvalidArgument, {"'f'", "'x'", "not among"});
  check_failed(write({{"f", {.outputs = {{"y", {}}}}}}), Code::kInvalidArgument, {"'f'", "'y'", "empty"});
  check_failed(write({{"f", {.inputs = {{"x", {line.x, DType::kInt32}}}, .outputs = {{"y", {line.y}}}}}}),
               Code::kInvalidArgument, {"'x'", "int32", "float32"});
  Graph other(t.engine->ops());
  const Output foreign = Scope(other).constant(Tensor::scalar(1.f));
  check_failed(write({{"f", {.outputs = {{"y", {foreign}}}}}}), Code::kInvalidArgument, {"another graph"});
  check_failed(write(line.signatures(), {.initializer = foreign.node}), Code::kInvalidArgument, {"another graph"});
  check_failed(write(line.signatures(), {.assets = {{line.x, "words.txt"}}}), Code::kInvalidArgument,
               {"words.txt", "string"});
  const Output path = ops::Placeholder(Scope(line.graph).named("path"), DType::kString);
  check_failed(write(line.signatures(), {.assets = {{path, "a/words"}, {path, "b/words"}}}), Code::kInvalidArgument,
               {"a/words", "b/words", "one name"});
  check_failed(write(line.signatures(), {.assets = {{path, dir.file("gone")}}}), Code::kNotFound, {"gone"});
  check_failed(export_saved_model(dir.file("out"), line.graph, line.signatures(), {}), Code::kNotFound,
               {"2 variables are without a value", "'line/bias'", "'line/"});
  Snapshot wrong = *snapshot;
  for (auto& [name, value] : wrong.variables) value = Tensor::scalar(1.f);
  check_failed(export_saved_model(dir.file("out"), line.graph, line.signatures(), wrong), Code::kInvalidArgument,
               {"line/", "must be"});
  CHECK(std::filesystem::is_empty(dir.path()));
  dir.write("file", "x");
  check_failed(line.write(dir.file("file")), Code::kAlreadyExists, {"file", "there already"});
  check_failed(line.write(dir.path()), Code::kAlreadyExists, {"there already"});
  REQUIRE_FALSE(line.write(dir.file("file/out")).ok());
  REQUIRE_FALSE(line.write("").ok());
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);
}
