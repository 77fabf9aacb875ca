// SPDX-License-Identifier: Apache-2.0
// SavedModels and .meta files: what they load, and that what is damaged, missing or hostile is one error.
#include "troupe/saved_model.h"

#include <filesystem>

#include "tests/engine/fixtures.h"
#include "tests/graph/saved_models.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;

namespace {

Tensor x_of(std::vector<float> values) {
  return Tensor::of<float>(std::span<const float>(values), {static_cast<int64_t>(values.size())});
}

void check_y(const SavedModel& model, float x, float y) {
  const auto out = model.run("serving_default", {{"x", x_of({x})}});
  INFO((out.ok() ? "" : out.error().str()));
  REQUIRE(out.ok());
  REQUIRE(out->size() == 1);
  CHECK(out->at("y").identical(x_of({y})));
}

/// Loads what must not load.
Error load_error(Engine& engine, const std::string& path, SavedModelOptions options = {}) {
  auto model = load_saved_model(engine, path, std::move(options));
  REQUIRE_FALSE(model.ok());
  INFO(model.error().str());
  CHECK(model.error().str().find('\n') == std::string::npos);
  return model.error();
}

/// The error of the sample with `from` as `to`.
Error changed_error(const std::string& from, const std::string& to) {
  const TestEngine t;
  const SampleModel sample(replaced(sample_meta_graph(), from, to));
  return load_error(*t.engine, sample.folder());
}

}  // namespace

TEST_CASE("a SavedModel runs its signatures with restored variables and its assets") {
  const TestEngine t;
  const SampleModel sample;
  auto model = load_saved_model(*t.engine, sample.folder());
  INFO((model.ok() ? "" : model.error().str()));
  REQUIRE(model.ok());
  check_y(*model, 2, 6);
  CHECK(model->tags() == std::vector<std::string>{"serve"});
  const auto words = model->run("vocabulary", {});
  REQUIRE(words.ok());
  CHECK(words->at("text").identical(Tensor::scalar<std::string>("one two")));
  REQUIRE(model->signatures().size() == 2);
  const ModelSignature& serving = model->signatures().at("serving_default");
  CHECK(serving.method == "tensorflow/serving/predict");
  CHECK(serving.inputs.at("x").dtype == DType::kFloat32);
  CHECK(serving.inputs.at("x").shape == PartialShape{-1});
  CHECK(serving.outputs.at("y").output.name() == "call:0");
  const auto beyond = model->session().run({{"x:0", x_of({1, 4})}}, "call/m");
  REQUIRE(beyond.ok());
  CHECK((*beyond)[0].identical(x_of({3, 12})));
}

TEST_CASE("a variable of which only a copy is restored has the copy's value") {
  const TestEngine t;
  const std::string copy = R"(  node { name: 'copy' op: 'VarHandleOp' attr { key: 'dtype' value { type: DT_FLOAT } }
         attr { key: 'shape' value { shape { } } } attr { key: 'shared_name' value { s: 'copy of w' } } }
  node { name: 'first' op: 'ReadVariableOp' input: 'w' attr { key: 'dtype' value { type: DT_FLOAT } } }
  node { name: 'begin' op: 'AssignVariableOp' input: 'copy' input: 'first'
         attr { key: 'dtype' value { type: DT_FLOAT } } }
)";
  const std::string set = "node { name: 'set' op: 'AssignVariableOp' input: ";
  const std::string graph = replaced(sample_meta_graph(), "  " + set + "'w'", copy + "  " + set + "'copy'");
  const SampleModel sample(graph);
  auto model = load_saved_model(*t.engine, sample.folder());
  INFO((model.ok() ? "" : model.error().str()));
  REQUIRE(model.ok());
  check_y(*model, 2, 6);
}

TEST_CASE("a SavedModel in text and one named by its file load alike") {
  const TestEngine t;
  const SampleModel sample;
  auto by_file = load_saved_model(*t.engine, sample.file("model/saved_model.pb"));
  REQUIRE(by_file.ok());
  check_y(*by_file, 2, 6);
  std::filesystem::remove(sample.file("model/saved_model.pb"));
  sample.write("model/saved_model.pbtxt", saved_model_text(sample_meta_graph()));
  auto text = load_saved_model(*t.engine, sample.folder());
  REQUIRE(text.ok());
  check_y(*text, 2, 6);
}

TEST_CASE("models on one engine share no variables, and a model's container goes with it") {
  const TestEngine t;
  const SampleModel three, five(sample_meta_graph(), 5);
  auto a = load_saved_model(*t.engine, three.folder());
  auto b = load_saved_model(*t.engine, five.folder());
  REQUIRE((a.ok() && b.ok()));
  std::string container;
  {
    auto again = load_saved_model(*t.engine, three.folder());
    REQUIRE(again.ok());
    container = again->container();
    CHECK(container != a->container());
    REQUIRE(again->graph().find("w"));
    const Result<Snapshot> there = t.engine->snapshot(container).get();
    REQUIRE(there.ok());
    CHECK(there->variables.at("w").identical(Tensor::scalar<float>(3)));
  }
  check_y(*a, 1, 3);
  check_y(*b, 1, 5);
  const Result<Snapshot> gone = t.engine->snapshot(container).get();
  REQUIRE(gone.ok());
  CHECK(gone->variables.empty());
  auto named = load_saved_model(*t.engine, five.folder(), {.container = "mine"});
  REQUIRE(named.ok());
  const SavedModel moved = std::move(*named);
  CHECK(t.engine->snapshot("mine").get()->variables.size() == 2);
  check_y(moved, 2, 10);
}

TEST_CASE("a .meta file restores the checkpoint beside it, where there is one") {
  const TestEngine t;
  const SampleModel sample;
  const std::string text = sample_meta_graph();
  sample.write("model.ckpt-7.meta", wire_bytes<proto::MetaGraphDef>(text));
  sample.write_weights("model.ckpt-7", 4);
  auto model = load_saved_model(*t.engine, sample.file("model.ckpt-7.meta"));
  INFO((model.ok() ? "" : model.error().str()));
  REQUIRE(model.ok());
  check_y(*model, 2, 8);
  sample.write("alone.meta", text);
  auto alone = load_saved_model(*t.engine, sample.file("alone.meta"));
  REQUIRE(alone.ok());
  CHECK(alone->run("serving_default", {{"x", x_of({1})}}).error().code == Code::kFailedPrecondition);
}

TEST_CASE("queue runners are looked up in the graph") {
  const TestEngine t;
  const SampleModel sample;
  const auto load = [&](const std::string& queue, const std::string& enqueue) {
    proto::MetaGraphDef def;
    REQUIRE(google::protobuf::TextFormat::ParseFromString(sample_meta_graph(), &def));
    proto::QueueRunnerDef runner;
    runner.set_queue_name(queue);
    runner.add_enqueue_op_name(enqueue);
    proto::CollectionEntry& runners = *def.add_collection_def();
    runners.set_key("queue_runners");
    runners.mutable_value()->mutable_bytes_list()->add_value(runner.SerializeAsString());
    sample.write("runners.meta", def.SerializeAsString());
    return load_saved_model(*t.engine, sample.file("runners.meta"));
  };
  const auto there = load("x", "w");
  REQUIRE(there.ok());
  REQUIRE(there->queue_runners().size() == 1);
  const QueueRunner& runner = there->queue_runners()[0];
  CHECK(runner.queue->name() == "x");
  REQUIRE(runner.enqueue.size() == 1);
  CHECK(runner.enqueue[0]->name() == "w");
  CHECK_FALSE(runner.close);
  CHECK_FALSE(runner.cancel);
  CHECK_THAT(load("no_queue", "w").error().message, Contains("queue runner 'no_queue': no node 'no_queue'"));
  CHECK_THAT(load("x", "none").error().message, Contains("queue runner 'x': no node 'none'"));
}

TEST_CASE("tags choose the graph") {
  const TestEngine t;
  const SampleModel sample;
  const std::string train = replaced(replaced(sample_meta_graph(), "tags: 'serve'", "tags: 'train' tags: 'gpu'"),
                                     "key: 'serving_default'", "key: 'training'");
  sample.write("model/saved_model.pb",
               wire_bytes<proto::SavedModel>("saved_model_schema_version: 1 meta_graphs { " + train +
                                             " } meta_graphs { " + sample_meta_graph() + " }"));
  auto serve = load_saved_model(*t.engine, sample.folder());
  REQUIRE(serve.ok());
  CHECK(serve->signature("serving_default").ok());
  auto other = load_saved_model(*t.engine, sample.folder(), {.tags = {"gpu", "train"}});
  REQUIRE(other.ok());
  CHECK(other->signature("training").ok());
  CHECK_THAT(other->signature("serving_default").error().message, Contains("'training', 'vocabulary'"));
  const Error none = load_error(*t.engine, sample.folder(), {.tags = {"tpu"}});
  CHECK(none.code == Code::kNotFound);
  CHECK_THAT(none.message, Contains("{'tpu'}") && Contains("{'train', 'gpu'}, {'serve'}"));
}

TEST_CASE("defaults stand for inputs that are not given, and wrong inputs are refused by their names") {
  const TestEngine t;
  const SampleModel sample(replaced(sample_meta_graph(), "method_name: 'tensorflow/serving/predict'",
                                    "defaults { key: 'x' value { dtype: DT_FLOAT tensor_shape { dim { size: 2 } } "
                                    "float_val: 7 } }"));
  auto model = load_saved_model(*t.engine, sample.folder());
  REQUIRE(model.ok());
  const auto out = model->run("serving_default", {});
  REQUIRE(out.ok());
  CHECK(out->at("y").identical(x_of({21, 21})));

  const SampleModel strict;
  auto asked = load_saved_model(*t.engine, strict.folder());
  REQUIRE(asked.ok());
  const auto message = [&](const std::string& signature, const std::map<std::string, Tensor>& inputs) {
    const auto result = asked->run(signature, inputs);
    REQUIRE_FALSE(result.ok());
    return result.error().message;
  };
  CHECK_THAT(message("predict", {}), Contains("'predict'") && Contains("'serving_default', 'vocabulary'"));
  CHECK_THAT(message("serving_default", {}), Contains("needs input 'x'"));
  CHECK_THAT(message("serving_default", {{"x", x_of({1})}, {"z", x_of({1})}}), Contains("'z' is not an input"));
  CHECK_THAT(message("serving_default", {{"x", Tensor::of<int32_t>({1})}}), Contains("'x'") && Contains("int32"));
  CHECK_THAT(message("serving_default", {{"x", f(1)}}), Contains("'x'") && Contains("[]"));
}

TEST_CASE("what is not a SavedModel is named for what it is") {
  const TestEngine t;
  const SampleModel sample;
  CHECK(load_error(*t.engine, sample.file("nothing")).code == Code::kNotFound);
  CHECK_THAT(load_error(*t.engine, sample.file("model/variables")).message,
             Contains("not a SavedModel") && Contains("checkpoint") && Contains("'variables.index'"));
  CHECK_THAT(load_error(*t.engine, sample.file("model/assets")).message, Contains("'words.txt'"));
  std::filesystem::create_directory(sample.file("empty"));
  CHECK_THAT(load_error(*t.engine, sample.file("empty")).message, Contains("it is empty"));
  sample.write("checkpoint", "model_checkpoint_path: \"model.ckpt-7\"\n");
  CHECK_THAT(load_error(*t.engine, sample.file("checkpoint")).message, Contains("which checkpoint is the latest"));
  sample.write("model/saved_model.pb", "\x89PNG\r\n\x1a\n and so on");
  CHECK_THAT(load_error(*t.engine, sample.folder()).message, Contains("a PNG picture, not a SavedModel"));
  sample.write("model/saved_model.pb", wire_bytes<proto::SavedModel>("saved_model_schema_version: 1"));
  CHECK_THAT(load_error(*t.engine, sample.folder()).message, Contains("has no graph"));
}

TEST_CASE("parts of a model that are missing or wrong are errors with file, node and values") {
  CHECK_THAT(changed_error("name: 'call:0'", "name: 'answer:0'").message,
             Contains("saved_model.pb") && Contains("'serving_default'") && Contains("output 'y'"));
  CHECK_THAT(changed_error("name: 'call:0'", "name: 'call:3'").message, Contains("output 'y': has 1 outputs"));
  CHECK_THAT(changed_error("name: 'call:0' dtype: DT_FLOAT", "name: 'call:0' dtype: DT_INT32").message,
             Contains("int32") && Contains("float32"));
  CHECK_THAT(changed_error("op: 'ReadFile'", "op: 'ReadMind'").message, Contains("ReadMind (file)"));
  CHECK_THAT(changed_error("restore_op_name: 'restore'", "restore_op_name: 'restart'").message, Contains("'restart'"));
  CHECK_THAT(changed_error("filename_tensor_name: 'saver_filename:0'", "").message, Contains("'restore'"));
  CHECK_THAT(changed_error("filename_tensor_name: 'saver_filename:0'", "filename_tensor_name: 'x:0'").message,
             Contains("the checkpoint's name"));
  CHECK_THAT(changed_error("node_list { value: 'init' }", "node_list { value: 'begin' }").message,
             Contains("initialiser 'begin'"));
  CHECK_THAT(changed_error("tensor_info { name: 'path:0' }", "tensor_info { name: 'x:0' }").message,
             Contains("asset 'words.txt'"));
  CHECK_THAT(changed_error("string_val: 'w'", "string_val: 'q'").message, Contains("q"));

  const TestEngine t;
  const SampleModel sample;
  std::filesystem::remove_all(sample.file("model/variables"));
  const Error error = load_error(*t.engine, sample.folder());
  CHECK(error.code == Code::kNotFound);
  CHECK_THAT(error.message, Contains("2 variables") && Contains("variables.index"));
}

TEST_CASE("assets lie in the model's folder") {
  const TestEngine t;
  const SampleModel sample;
  sample.write("secret.txt", "secret");
  for (const std::string& name : {std::string("../../secret.txt"), sample.file("secret.txt"), std::string("."),
                                  std::string("a/../../../secret.txt"), std::string("")}) {
    INFO(name);
    const Error error = changed_error("filename: 'words.txt'", "filename: '" + name + "'");
    if (name == ".") continue;  // a folder of the model's own, which cannot be read
    CHECK(error.code == Code::kInvalidArgument);
    CHECK_THAT(error.message, Contains("asset"));
  }
  CHECK(changed_error("filename: 'words.txt'", "filename: 'other.txt'").code == Code::kNotFound);
  std::filesystem::remove(sample.file("model/assets/words.txt"));
  std::filesystem::create_symlink(sample.file("secret.txt"), sample.file("model/assets/words.txt"));
  CHECK_THAT(load_error(*t.engine, sample.folder()).message, Contains("leads out"));
}

TEST_CASE("a damaged SavedModel is an error, and never more") {
  const TestEngine t;
  const SampleModel sample;
  const std::string whole = TemporaryDirectory::read(sample.file("model/saved_model.pb"));
  for (size_t size = 0; size < whole.size(); ++size) {
    INFO(size);
    sample.write("model/saved_model.pb", whole.substr(0, size));
    auto model = load_saved_model(*t.engine, sample.folder());
    REQUIRE_FALSE(model.ok());
    CHECK(model.error().code == Code::kDataLoss);
    CHECK_THAT(model.error().message, Contains("saved_model.pb"));
  }
  int loaded = 0;
  for (size_t at = 0; at < whole.size(); at += 3) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << (at % 8)));
    sample.write("model/saved_model.pb", bytes);
    auto model = load_saved_model(*t.engine, sample.folder());
    loaded += model.ok();
    if (!model.ok()) CHECK(model.error().str().find('\n') == std::string::npos);
  }
  CHECK(loaded < static_cast<int>(whole.size()) / 3);
}
