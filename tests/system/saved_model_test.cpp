// SPDX-License-Identifier: Apache-2.0
// `troupe run` and `troupe inspect` of SavedModels and .meta files as their users run them.
#include "tests/graph/saved_models.h"
#include "tests/system/cluster.h"
#include "troupe/npy.h"

namespace troupe::testing {
namespace {

using Catch::Contains;

struct Feeds : SampleModel {
  explicit Feeds(const std::string& meta_graph = sample_meta_graph()) : SampleModel(meta_graph) {
    REQUIRE(write_npz(file("in.npz"), {{"x", Tensor::of<float>({1, 2})}}).ok());
    REQUIRE(write_npz(file("by_tensor.npz"), {{"x:0", Tensor::of<float>({1, 2})}}).ok());
  }
};

void check_one_line(const Ended& ended, const std::string& words) {
  INFO(ended.out << ended.err);
  CHECK(ended.status == 1);
  CHECK(ended.out.empty());
  CHECK(std::ranges::count(ended.err, '\n') == 1);
  CHECK_THAT(ended.err, Catch::StartsWith("troupe: ") && Contains(words));
}

/// A .meta file of an input pipeline: a runner moves what the first queue holds, 1 to 5 and an end, to the second, as
/// 60 / element. `first` is the first element.
std::string pipeline(int64_t first = 1) {
  const std::string int64s = "attr { key: 'component_types' value { list { type: DT_INT64 } } } ";
  const auto type = [](const std::string& attr) { return "attr { key: '" + attr + "' value { type: DT_INT64 } } "; };
  const auto types = [](const std::string& attr) {
    return "attr { key: '" + attr + "' value { list { type: DT_INT64 } } } ";
  };
  const auto constant = [&](const std::string& name, const std::string& value) {
    return "node { name: '" + name + "' op: 'Const' " + type("dtype") +
           "attr { key: 'value' value { tensor { dtype: DT_INT64 " + value + " } } } } ";
  };
  proto::MetaGraphDef out;
  const std::string text =
      "graph_def { node { name: 'from' op: 'FIFOQueueV2' " + int64s + "} node { name: 'to' op: 'FIFOQueueV2' " +
      int64s + "attr { key: 'capacity' value { i: 2 } } } " +
      constant("numbers", "tensor_shape { dim { size: 5 } } int64_val: " + std::to_string(first) +
                              " int64_val: 2 int64_val: 3 int64_val: 4 int64_val: 5") +
      constant("sixty", "tensor_shape { } int64_val: 60") +
      "node { name: 'fill' op: 'QueueEnqueueManyV2' input: 'from' input: 'numbers' " + types("Tcomponents") +
      "} node { name: 'init' op: 'QueueCloseV2' input: 'from' input: '^fill' } "
      "node { name: 'taken' op: 'QueueDequeueV2' input: 'from' " +
      int64s + "} node { name: 'part' op: 'FloorDiv' input: 'sixty' input: 'taken' " + type("T") +
      "} node { name: 'move' op: 'QueueEnqueueV2' input: 'to' input: 'part' " + types("Tcomponents") +
      "} node { name: 'close' op: 'QueueCloseV2' input: 'to' } "
      "node { name: 'cancel' op: 'QueueCloseV2' input: 'to' "
      "attr { key: 'cancel_pending_enqueues' value { b: true } } } "
      "node { name: 'x' op: 'QueueDequeueV2' input: 'to' " +
      int64s + "} }";
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &out));
  proto::QueueRunnerDef runner;
  runner.set_queue_name("to");
  for (int thread = 0; thread < 2; ++thread) runner.add_enqueue_op_name("move");
  runner.set_close_op_name("close");
  runner.set_cancel_op_name("cancel");
  proto::CollectionEntry& runners = *out.add_collection_def();
  runners.set_key("queue_runners");
  runners.mutable_value()->mutable_bytes_list()->add_value(runner.SerializeAsString());
  return out.SerializeAsString();
}

}  // namespace

TEST_CASE("troupe run calls a signature of a SavedModel") {
  const Feeds m;
  for (const std::vector<std::string>& how :
       {std::vector<std::string>{"--signature", "serving_default"}, std::vector<std::string>{}}) {
    std::vector<std::string> arguments = {"run", m.folder(), "--feeds", m.file("in.npz")};
    arguments.insert(arguments.end(), how.begin(), how.end());
    const Ended ended = run(arguments);
    INFO(ended.err);
    CHECK(ended.status == 0);
    CHECK(ended.out == "y float32[2] [3, 6]\n");
  }
  const Ended words = run({"run", m.folder(), "--signature", "vocabulary"});
  CHECK(words.status == 0);
  CHECK_THAT(words.out, Catch::StartsWith("text string[] ") && Contains("one two"));
  REQUIRE(run({"run", m.folder(), "--feeds", m.file("in.npz"), "--out", m.file("out.npz")}).status == 0);
  CHECK(read_npz(m.file("out.npz"))->at("y").identical(Tensor::of<float>({3, 6})));
  const Ended by_tensor = run({"run", m.folder(), "--feeds", m.file("by_tensor.npz"), "--fetch", "call/m,w:0"});
  CHECK_THAT(by_tensor.err, Contains("'w:0'"));
  const Ended fetched = run({"run", m.folder(), "--feeds", m.file("by_tensor.npz"), "--fetch", "call/m"});
  INFO(fetched.err);
  CHECK(fetched.out == "call/m float32[2] [3, 6]\n");
}

TEST_CASE("troupe run restores the checkpoint beside a .meta file") {
  const Feeds m;
  m.write("model.ckpt.meta", wire_bytes<proto::MetaGraphDef>(sample_meta_graph()));
  m.write_weights("model.ckpt", 7);
  const Ended ended = run({"run", m.file("model.ckpt.meta"), "--feeds", m.file("by_tensor.npz"), "--fetch", "call:0"});
  INFO(ended.err);
  CHECK(ended.out == "call:0 float32[2] [7, 14]\n");
}

TEST_CASE("troupe run fills the queues of an input pipeline") {
  const TemporaryDirectory d;
  d.write("input.meta", pipeline());
  const auto steps = [&](const char* count) {
    return run({"run", d.file("input.meta"), "--init", "init", "--fetch", "x:0", "--all-steps", "--steps", count,
                "--deadline", "60", "--out", d.file("out.npz")});
  };
  for (const char* count : {"2", "5"}) {  // with and without elements that nobody takes
    const Ended ended = steps(count);
    INFO(ended.err);
    REQUIRE(ended.status == 0);
    const Tensor x = read_npz(d.file("out.npz"))->at("x:0");
    CHECK(x.elements() == std::stoi(count));
    std::vector<int64_t> parts(x.data<int64_t>(), x.data<int64_t>() + x.elements());
    std::ranges::sort(parts, std::greater<>());  // two threads move them
    if (x.elements() == 5) CHECK(parts == std::vector<int64_t>{60, 30, 20, 15, 12});
  }
  check_one_line(steps("6"), "'to' is closed and has insufficient elements");
}

TEST_CASE("an error of what fills a queue is that of the run") {
  const TemporaryDirectory d;
  d.write("input.meta", pipeline(0));
  const Ended ended =
      run({"run", d.file("input.meta"), "--init", "init", "--fetch", "x:0", "--steps", "6", "--deadline", "60"});
  check_one_line(ended, "FloorDiv 'part': what fills queue 'to': ");
}

TEST_CASE("troupe freeze makes a graph that runs without the checkpoint") {
  const Feeds m;
  const Ended frozen = run({"freeze", m.folder(), m.file("frozen.pb")});
  INFO(frozen.err);
  CHECK(frozen.status == 0);
  CHECK_THAT(frozen.out, Contains("frozen.pb: ") && Contains("output call:0 float32 [?]\n"));
  std::filesystem::remove_all(m.folder());
  const Ended ended = run({"run", m.file("frozen.pb"), "--feeds", m.file("by_tensor.npz"), "--fetch", "call:0"});
  INFO(ended.err);
  CHECK(ended.out == "call:0 float32[2] [3, 6]\n");
  const Feeds n;
  check_one_line(run({"freeze", n.folder(), n.file("f.pb"), "--signature", "predict"}),
                 "'serving_default', 'vocabulary'");
  check_one_line(run({"freeze", n.folder(), n.file("f.pb"), "--outputs", "w:0,z"}), "z");
  check_one_line(run({"freeze", n.file("in.npz"), n.file("f.pb")}), "a ZIP archive");
  CHECK_FALSE(std::filesystem::exists(n.file("f.pb")));
}

TEST_CASE("troupe freeze refuses tables, which nothing would fill") {
  const auto attr = [](const std::string& name, const std::string& type) {
    return "attr { key: '" + name + "' value { type: " + type + " } } ";
  };
  const Feeds m(
      replaced(sample_meta_graph(), "graph_def {",
               "graph_def { node { name: 'numbers' op: 'HashTableV2' " + attr("key_dtype", "DT_INT64") +
                   attr("value_dtype", "DT_INT64") + "} node { name: 'key' op: 'Const' " + attr("dtype", "DT_INT64") +
                   "attr { key: 'value' value { tensor { dtype: DT_INT64 tensor_shape { } int64_val: 7 } } } } "
                   "node { name: 'found' op: 'LookupTableFindV2' input: 'numbers' input: 'key' input: 'key' " +
                   attr("Tin", "DT_INT64") + attr("Tout", "DT_INT64") + "}"));
  check_one_line(run({"freeze", m.folder(), m.file("f.pb"), "--outputs", "call:0,found:0"}),
                 "HashTableV2 'numbers': a graph of constants cannot fill this table");
  CHECK_FALSE(std::filesystem::exists(m.file("f.pb")));
  CHECK(run({"freeze", m.folder(), m.file("f.pb"), "--outputs", "call:0"}).status == 0);
}

TEST_CASE("troupe inspect lists tags, signatures and assets of a SavedModel") {
  const Feeds m;
  const Ended ended = run({"inspect", m.folder()});
  INFO(ended.err);
  CHECK(ended.status == 0);
  CHECK_THAT(ended.out, Contains(": SavedModel, ") && Contains("of TensorFlow 2.21.0") && Contains("tags: serve\n") &&
                            Contains("checkpoint: 1 tensors, 4 bytes"));
  CHECK_THAT(ended.out, Contains("signature serving_default (tensorflow/serving/predict)") &&
                            Contains("input x   float32 [?]  x:0") && Contains("output y  float32 [?]  call:0"));
  CHECK_THAT(ended.out, Contains("words.txt  7 bytes  path:0") && Contains("variables"));
}

TEST_CASE("troupe names files that are not models or graphs for what they are") {
  const Feeds m;
  m.write("checkpoint", "model_checkpoint_path: \"model.ckpt\"\nall_model_checkpoint_paths: \"model.ckpt\"\n");
  m.write("picture.pb", "\x89PNG\r\n\x1a\n....");
  std::filesystem::create_directory(m.file("empty"));
  for (const char* command : {"inspect", "run", "place"}) {
    const auto of = [&](const std::string& file) {
      std::vector<std::string> arguments = {command, m.file(file)};
      if (arguments[0] == "run") arguments.insert(arguments.end(), {"--fetch", "y"});
      return run(arguments);
    };
    INFO(command);
    check_one_line(of("checkpoint"), "which checkpoint is the latest");
    check_one_line(of("picture.pb"), "a PNG picture");
    check_one_line(of("in.npz"), "a ZIP archive");
    check_one_line(of("empty"), "is not a SavedModel: it is empty");
    check_one_line(of("model/variables"), "but a checkpoint, 'variables.index'");
    check_one_line(of("nothing"), "nothing");
  }
  check_one_line(run({"run", m.folder()}), "needs input 'x' (float32 [?])");
  check_one_line(run({"run", m.folder(), "--signature", "predict"}), "'serving_default', 'vocabulary'");
  check_one_line(run({"run", m.folder(), "--tags", "train"}), "{'serve'}");
  check_one_line(run({"run", m.folder(), "--signature", "vocabulary", "--feeds", m.file("in.npz"), "--fetch", "z"}),
                 "'z'");
  check_one_line(run({"run", m.file("in.npz"), "--signature", "serving_default"}), "neither a folder nor a .meta");
}

}  // namespace troupe::testing
