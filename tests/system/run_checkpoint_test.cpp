// SPDX-License-Identifier: Apache-2.0
// `troupe run --checkpoint` and `--checkpoint-out`: variables from and to checkpoints, and what they do not share.
#include "io/checkpoint_reader.h"
#include "io/saved_tensors.pb.h"
#include "io/tensor_bundle.h"
#include "tests/graph/saved_models.h"
#include "tests/io/saved_samples.h"
#include "tests/system/cluster.h"
#include "troupe/checkpoint.h"
#include "troupe/npy.h"

namespace troupe::testing {
namespace {

using Catch::Contains;

/// A folder with a graph that adds 1 to variables v [2] and count [], and has another, slot [2], for itself.
struct Weights : TemporaryDirectory {
  Weights() {
    const auto variable = [](const std::string& name, const std::string& shape) {
      return "node { name: '" + name + "' op: 'VarHandleOp' attr { key: 'dtype' value { type: DT_FLOAT } }" +
             " attr { key: 'shape' value { shape { " + shape + " } } } }" + "node { name: 'read_" + name +
             "' op: 'ReadVariableOp' input: '" + name +
             "' input: '^more' attr { key: 'dtype' value { type: DT_FLOAT } } }";
    };
    const auto update = [](const std::string& name, const std::string& op, const std::string& of,
                           const std::string& value) {
      return "node { name: '" + name + "' op: '" + op + "' input: '" + of + "' input: '" + value +
             "' attr { key: 'dtype' value { type: DT_FLOAT } } }";
    };
    const auto constant = [](const std::string& name, const std::string& shape) {
      return "node { name: '" + name + "' op: 'Const' attr { key: 'dtype' value { type: DT_FLOAT } } attr { key: " +
             "'value' value { tensor { dtype: DT_FLOAT tensor_shape { " + shape + " } float_val: 1 } } } }";
    };
    const std::string two = "dim { size: 2 }";
    write("g.pbtxt", variable("v", two) + variable("count", "") + variable("slot", two) + constant("ones", two) +
                         constant("one", "") + update("more_v", "AssignAddVariableOp", "v", "ones") +
                         update("more_count", "AssignAddVariableOp", "count", "one") +
                         "node { name: 'more' op: 'NoOp' input: '^more_v' input: '^more_count' }" +
                         update("set_v", "AssignVariableOp", "v", "ones") +
                         update("set_count", "AssignVariableOp", "count", "one") +
                         update("set_slot", "AssignVariableOp", "slot", "ones") +
                         "node { name: 'init' op: 'NoOp' input: '^set_v' input: '^set_count' input: '^set_slot' }");
  }
  Ended run(std::vector<std::string> more) const {
    std::vector<std::string> all = {"run", file("g.pbtxt")};
    all.insert(all.end(), more.begin(), more.end());
    return testing::run(all);
  }
  TensorMap saved(const std::string& name) const {
    TensorMap out;
    const auto reader = CheckpointReader::open({}, file(name));
    REQUIRE(reader.ok());
    for (const auto& e : reader->entries()) out[std::string(e.name)] = *reader->read(std::string(e.name), {});
    return out;
  }
  std::string save(const std::string& name, const TensorMap& tensors) const {
    REQUIRE(write_bundle({}, file(name), to_save(tensors)).ok());
    return file(name);
  }
};

const TensorMap kWhole = {{"v", Tensor::of<float>({10, 20})}, {"count", Tensor::scalar(5.f)}};

}  // namespace

TEST_CASE("variables begin with a checkpoint of any format and are written in either") {
  const Weights w;
  w.save("a.ckpt", kWhole);
  const std::vector<std::string> fetch = {"--target", "more", "--fetch", "read_v,read_count"};
  const auto run = [&](const std::string& from, const std::string& to, const std::string& steps) {
    std::vector<std::string> all = fetch;
    all.insert(all.end(), {"--checkpoint", w.file(from), "--checkpoint-out", w.file(to), "--steps", steps});
    const Ended ended = w.run(all);
    CHECK(ended.err.empty());
    CHECK(ended.status == 0);
    return ended.out;
  };
  CHECK(run("a.ckpt", "b.safetensors", "2") == "read_v float32[2] [12, 22]\nread_count float32[] 7\n");
  const auto read = read_safetensors(w.file("b.safetensors"));
  REQUIRE(read.ok());
  REQUIRE(read->tensors.size() == 2);
  CHECK(read->tensors.at("v").identical(Tensor::of<float>({12, 22})));
  CHECK(run("b.safetensors", "new/c.ckpt", "1") == "read_v float32[2] [13, 23]\nread_count float32[] 8\n");
  // Over what is there, by the name of one of its files.
  CHECK(run("new/c.ckpt.index", "new/c.ckpt.index", "1") == "read_v float32[2] [14, 24]\nread_count float32[] 9\n");
  const TensorMap c = w.saved("new/c.ckpt");
  REQUIRE(c.size() == 2);
  CHECK(c.at("v").identical(Tensor::of<float>({14, 24})));
  CHECK(c.at("count").identical(Tensor::scalar(9.f)));
  CHECK(std::distance(std::filesystem::directory_iterator(w.file("new")), {}) == 2);
  // A snapshot of a Checkpointer, and the initialisation alone.
  auto kept = Checkpointer::open(w.file("kept"));
  REQUIRE(kept.ok());
  const auto snapshot = kept->save(kWhole, 3);
  REQUIRE(snapshot.ok());
  CHECK(run(snapshot->substr(w.path().size() + 1), "d.ckpt", "1") ==
        "read_v float32[2] [11, 21]\nread_count float32[] 6\n");
  CHECK(w.run({"--init", "init", "--checkpoint-out", w.file("first.ckpt")}).status == 0);
  CHECK(w.saved("first.ckpt").size() == 3);
}

TEST_CASE("a folder stands for the latest checkpoint in it") {
  const Weights w;
  std::filesystem::create_directory(w.file("logs"));
  w.save("logs/a", {{"v", Tensor::of<float>({1, 1})}, {"count", Tensor::scalar(1.f)}});
  w.save("logs/b", kWhole);
  const Ended none = w.run({"--checkpoint", w.file("logs"), "--fetch", "read_count"});
  CHECK(none.status == 1);
  CHECK_THAT(none.err, Contains("has 2 checkpoints"));
  w.write("logs/checkpoint", "model_checkpoint_path: \"b\"\n");
  CHECK(w.run({"--checkpoint", w.file("logs"), "--fetch", "read_count"}).out == "read_count float32[] 6\n");
  CHECK_THAT(testing::run({"checkpoint", "list", w.file("logs")}).out, Contains("count"));
}

TEST_CASE("floating weights of another type become those of the variables") {
  const Weights w;
  w.save("half.ckpt", {{"v", Tensor::of<bfloat16>({bfloat16(1.5f), bfloat16(-2.f)})}, {"count", Tensor::scalar(2.5)}});
  CHECK(w.run({"--checkpoint", w.file("half.ckpt"), "--fetch", "read_v,read_count"}).out ==
        "read_v float32[2] [2.5, -1]\nread_count float32[] 3.5\n");
}

TEST_CASE("keys of objects are found by the names that their variables had") {
  const Weights w;
  proto::SavedObjects objects;
  for (const auto& [name, key] : {std::pair("v", "model/a"), std::pair("count", "model/b")}) {
    auto* attribute = objects.add_object()->add_attribute();
    attribute->set_full_name(name);
    attribute->set_checkpoint_key(std::string(key) + "/.ATTRIBUTES/VARIABLE_VALUE");
  }
  w.save("objects", {{"_CHECKPOINTABLE_OBJECT_GRAPH", Tensor::scalar(objects.SerializeAsString())},
                     {"model/a/.ATTRIBUTES/VARIABLE_VALUE", kWhole.at("v")},
                     {"model/b/.ATTRIBUTES/VARIABLE_VALUE", kWhole.at("count")}});
  const Ended ended = w.run({"--checkpoint", w.file("objects"), "--fetch", "read_v,read_count"});
  CHECK(ended.err.empty());
  CHECK(ended.out == "read_v float32[2] [11, 21]\nread_count float32[] 6\n");
}

TEST_CASE("the parts of a partitioned variable are read from its one tensor, and written as its parts") {
  const TemporaryDirectory folder;
  const std::string type = "attr { key: 'dtype' value { type: DT_FLOAT } }";
  const auto part = [&](const std::string& name, int columns) {
    return "node { name: '" + name + "' op: 'VarHandleOp' " + type + " attr { key: 'shape' value { shape { " +
           "dim { size: 2 } dim { size: " + std::to_string(columns) + " } } } } }" + "node { name: '" + name +
           "/read' op: 'ReadVariableOp' input: '" + name + "' " + type + " }";
  };
  const std::string graph = part("w/part_0", 2) + part("w/part_1", 1) + part("w/part_0/Adam", 3);
  folder.write("g.pbtxt", graph);
  const Tensor w = Tensor::of<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const TensorMap whole = {{"w", w}, {"w/Adam", w}};
  REQUIRE(write_bundle({}, folder.file("a.ckpt"), to_save(whole)).ok());
  const auto run = [&](const std::string& file, std::vector<std::string> more) {
    std::vector<std::string> all = {"run", folder.file(file), "--fetch",
                                    "w/part_0/read,w/part_1/read,w/part_0/Adam/read"};
    all.insert(all.end(), more.begin(), more.end());
    return testing::run(all);
  };
  const std::string values =
      "w/part_0/read float32[2,2] [[1, 2], [4, 5]]\nw/part_1/read float32[2,1] [[3], [6]]\n"
      "w/part_0/Adam/read float32[2,3] [[1, 2, 3], [4, 5, 6]]\n";
  const Ended by_names = run("g.pbtxt", {"--checkpoint", folder.file("a.ckpt")});
  CHECK(by_names.err.empty());
  CHECK(by_names.out == values);

  // As the graph's own restore has it, and then they are saved as parts.
  const auto texts = [&](const std::string& name, std::vector<std::string> of) {
    std::string all;
    for (const std::string& text : of) all += " string_val: '" + text + "'";
    return "node { name: '" + name +
           "' op: 'Const' attr { key: 'dtype' value { type: DT_STRING } } attr { key: 'value' " +
           "value { tensor { dtype: DT_STRING tensor_shape { dim { size: " + std::to_string(of.size()) + " } }" + all +
           " } } } }";
  };
  std::string restore =
      "node { name: 'file' op: 'Const' attr { key: 'dtype' value { type: DT_STRING } } attr { key: 'value' value { "
      "tensor { dtype: DT_STRING tensor_shape { } string_val: 'a' } } } }" +
      texts("keys", {"w", "w", "w/Adam"}) + texts("parts", {"2 3 -:0,2", "2 3 -:2,1", ""}) +
      "node { name: 'restore' op: 'RestoreV2' input: 'file' input: 'keys' input: 'parts' attr { key: 'dtypes' value { "
      "list { type: DT_FLOAT type: DT_FLOAT type: DT_FLOAT } } } }";
  const char* names[] = {"w/part_0", "w/part_1", "w/part_0/Adam"};
  for (int i = 0; i < 3; ++i)
    restore += "node { name: 'set" + std::to_string(i) + "' op: 'AssignVariableOp' input: '" + names[i] +
               "' input: 'restore:" + std::to_string(i) + "' " + type + " }";
  folder.write("r.pbtxt", graph + restore);
  const Ended by_restore =
      run("r.pbtxt", {"--checkpoint", folder.file("a.ckpt"), "--checkpoint-out", folder.file("b.ckpt")});
  CHECK(by_restore.err.empty());
  CHECK(by_restore.out == values);
  const auto written = CheckpointReader::open({}, folder.file("b.ckpt"));
  REQUIRE(written.ok());
  CHECK(written->entries().size() == 2);
  for (const auto& entry : written->entries()) {
    CHECK(entry.parts == (entry.name == "w" ? 2 : 1));
    CHECK(std::ranges::equal(written->read(std::string(entry.name), {})->values<float>(), w.values<float>()));
  }
  CHECK(run("g.pbtxt", {"--checkpoint", folder.file("b.ckpt")}).out == values);

  // Parts that do not make the tensor are not taken for it.
  REQUIRE(write_bundle({}, folder.file("c.ckpt"), to_save(TensorMap{{"w", Tensor::of<float>({1, 2}, {2, 1})}})).ok());
  check_error(run("g.pbtxt", {"--checkpoint", folder.file("c.ckpt")}), 1, {"no tensor of the graph's 3 variables"});
  check_error(run("r.pbtxt", {"--checkpoint", folder.file("c.ckpt")}), 1,
              {"'w' is float32[2,1], and variable 'w/part_0' a part of [2,3]"});
}

TEST_CASE("what a checkpoint lacks and what nobody takes is listed") {
  const Weights w;
  const TensorMap part = {{"v", kWhole.at("v")}, {"old/w", Tensor::scalar(1.f)}, {"old/x", Tensor::scalar(1.f)}};
  w.save("part.ckpt", part);
  const std::string from = w.file("part.ckpt");
  check_error(w.run({"--checkpoint", from, "--target", "more"}), 1,
              {"lacks 1 variable: 'count'", "2 tensors that no variable takes: 'old/w', 'old/x'"});
  // Those that the step does not need may be missing, and those that --init has set.
  const Ended needed = w.run({"--checkpoint", from, "--target", "more_v"});
  CHECK(needed.status == 0);
  CHECK(needed.err == "troupe: checkpoint '" + from + "' has 2 tensors that no variable takes: 'old/w', 'old/x'\n");
  const Ended set = w.run({"--checkpoint", from, "--init", "init", "--fetch", "read_v,read_count"});
  CHECK(set.status == 0);
  CHECK(set.out == "read_v float32[2] [11, 21]\nread_count float32[] 2\n");
  CHECK_THAT(set.err, Contains("lacks 2 variables, which stay as they were: 'count', 'slot'\n"));
  w.save("other.ckpt", {{"a", Tensor::scalar(1.f)}, {"b", Tensor::scalar(1.f)}});
  check_error(w.run({"--checkpoint", w.file("other.ckpt"), "--init", "init", "--fetch", "read_v"}), 1,
              {"no tensor of the graph's 3 variables: 'count', 'slot', 'v'", "'a', 'b'"});
}

TEST_CASE("checkpoints that do not fit or cannot be written are one line, and change nothing") {
  const Weights w;
  w.save("misfit.ckpt", {{"v", Tensor::of<float>({1, 2, 3})}, {"count", Tensor::scalar<int64_t>(1)}});
  check_error(w.run({"--checkpoint", w.file("misfit.ckpt"), "--target", "more"}), 1,
              {"'count' is int64[], and the variable float32[]", "'v' is float32[3], and the variable float32[2]"});
  check_error(w.run({"--checkpoint", w.file("none.ckpt"), "--target", "more"}), 1, {"none.ckpt"});
  check_error(w.run({"--checkpoint", w.file("g.pbtxt"), "--target", "more"}), 1, {"is not a checkpoint"});
  w.save("good.ckpt", kWhole);
  // A run that fails leaves what there was.
  check_error(w.run({"--checkpoint", w.file("good.ckpt"), "--checkpoint-out", w.file("good.ckpt"), "--target", "more",
                     "--steps", "3", "--deadline", "0.001", "--fetch", "read_slot"}),
              1, {"slot"});
  CHECK(w.saved("good.ckpt").at("v").identical(kWhole.at("v")));
  w.write("file", "x");
  check_error(w.run({"--init", "init", "--checkpoint-out", w.file("file/x.ckpt")}), 1, {"cannot be written", "file"});
  for (const std::string& folder : {w.file(""), w.file("."), w.file("..")})
    check_error(w.run({"--init", "init", "--checkpoint-out", folder}), 1, {folder, "the name of a file"});
  for (const char* option : {"--checkpoint", "--checkpoint-out", "--out", "--feeds", "--costs", "--trace"})
    check_error(w.run({"--init", "init", option, ""}), 2, {option, "name of a file is missing"});
  check_error(w.run({"--checkpoint-out", w.file("x.ckpt")}), 1, {"no variable of the graph has a value"});
  CHECK_FALSE(std::filesystem::exists(w.file("x.ckpt.index")));
  w.write("texts.pbtxt", R"(node { name: 'texts' op: 'VarHandleOp' attr { key: 'dtype' value { type: DT_STRING } }
                                   attr { key: 'shape' value { shape {} } } })");
  check_error(run({"run", w.file("texts.pbtxt"), "--checkpoint-out", w.file("x.safetensors")}), 1,
              {"a safetensors file cannot hold 'texts' string"});
}

TEST_CASE("variables of one name in two containers are refused before the steps that would be lost") {
  const Weights w;
  const auto variable = [](const std::string& name) {
    return "node { name: '" + name + "' op: 'VarHandleOp' attr { key: 'dtype' value { type: DT_FLOAT } } attr { key: " +
           "'shape' value { shape {} } } attr { key: 'shared_name' value { s: 'w' } } attr { key: 'container' value " +
           "{ s: '" + name + "' } } } node { name: 'read_" + name + "' op: 'ReadVariableOp' input: '" + name +
           "' attr { key: 'dtype' value { type: DT_FLOAT } } }";
  };
  w.write("two.pbtxt", variable("a") + variable("b"));
  // Without values a step would fail.
  check_error(run({"run", w.file("two.pbtxt"), "--fetch", "read_a,read_b", "--checkpoint-out", w.file("x.ckpt")}), 1,
              {"x.ckpt' cannot be written", "variable 'w' is in container 'a' and in 'b'"});
}

TEST_CASE("a run whose costs cannot be written has written its checkpoint") {
  const Weights w;
  check_error(w.run({"--init", "init", "--target", "more", "--checkpoint-out", w.file("kept.ckpt"), "--costs",
                     w.file("none/costs")}),
              1, {"none/costs", "No such file or directory"});
  CHECK(w.saved("kept.ckpt").contains("v"));
}

TEST_CASE("a SavedModel begins with other weights than its own") {
  const SampleModel m;
  m.write_weights("other.ckpt", 7);
  REQUIRE(write_npz(m.file("in.npz"), {{"x", Tensor::of<float>({1, 2})}}).ok());
  const Ended ended = run({"run", m.folder(), "--signature", "serving_default", "--feeds", m.file("in.npz"),
                           "--checkpoint", m.file("other.ckpt"), "--checkpoint-out", m.file("w.ckpt")});
  INFO(ended.err);
  CHECK(ended.status == 0);
  CHECK(ended.out == "y float32[2] [7, 14]\n");
  const auto written = CheckpointReader::open({}, m.file("w.ckpt"));
  REQUIRE(written.ok());
  CHECK(written->read("w", {})->identical(Tensor::scalar(7.f)));
}

TEST_CASE("a checkpoint of a SavedModel has no paths of its assets") {
  const SampleModel m(replaced(sample_meta_graph(), "input: 'words' input: 'file'", "input: 'words' input: 'path'"));
  for (const std::string name : {"w.ckpt", "w.safetensors"}) {
    const Ended ended = run({"run", m.folder(), "--signature", "vocabulary", "--checkpoint-out", m.file(name)});
    INFO(ended.err);
    REQUIRE(ended.status == 0);
    CHECK_THAT(ended.out, Contains("model/assets/words.txt"));
    const auto written = CheckpointReader::open({}, m.file(name));
    REQUIRE(written.ok());
    CHECK(written->find("w").ok());
    CHECK_FALSE(written->find("words").ok());
  }
  // One of before, or another variable of the name, does not become the path.
  REQUIRE(write_bundle({}, m.file("old"), to_save({{"w", Tensor::scalar(7.f)}, {"words", Tensor::scalar(1.f)}})).ok());
  const Ended ended = run({"run", m.folder(), "--signature", "vocabulary", "--checkpoint", m.file("old")});
  INFO(ended.err);
  CHECK(ended.status == 0);
  CHECK_THAT(ended.out, Contains("model/assets/words.txt"));
  CHECK_THAT(ended.err, Contains("no variable takes: 'words'"));
}

TEST_CASE("a checkpoint that is written without the tables of its graph says so") {
  const Weights w;
  w.write("table.pbtxt", R"(
node { name: 'v' op: 'VarHandleOp' attr { key: 'dtype' value { type: DT_FLOAT } }
       attr { key: 'shape' value { shape { dim { size: 2 } } } } }
node { name: 'words' op: 'MutableHashTableV2' attr { key: 'key_dtype' value { type: DT_STRING } }
       attr { key: 'value_dtype' value { type: DT_INT64 } } }
node { name: 'size' op: 'LookupTableSizeV2' input: 'words' })");
  w.save("v.ckpt", {{"v", Tensor::of<float>({1, 2})}});
  const Ended ended = run({"run", w.file("table.pbtxt"), "--checkpoint", w.file("v.ckpt"), "--fetch", "size",
                           "--checkpoint-out", w.file("out.ckpt")});
  CHECK(ended.status == 0);
  CHECK_THAT(ended.err, Contains("not what is in tables: 'words'"));
}

TEST_CASE("what is said of steps asks for those of a SavedModel, beside a checkpoint to write") {
  const SampleModel m;
  REQUIRE(write_npz(m.file("in.npz"), {{"x", Tensor::of<float>({1, 2})}}).ok());
  const Ended ended = run({"run", m.folder(), "--feeds", m.file("in.npz"), "--checkpoint-out", m.file("w.ckpt")});
  INFO(ended.err);
  CHECK(ended.out == "y float32[2] [3, 6]\n");
  CHECK(CheckpointReader::open({}, m.file("w.ckpt")).ok());
  CHECK(run({"run", m.folder(), "--checkpoint-out", m.file("same.ckpt")}).out.empty());
}

TEST_CASE("weights of a SavedModel are found by what its own checkpoint calls them") {
  // Keras 3 exports each variable twice: the one that the signature reads has another name than Python's.
  const SampleModel m(replaced(sample_meta_graph(), "string_val: 'w'", "string_val: 'own/0'"));
  const auto one_object = [](const std::string& key, const std::string& name, float value) {
    proto::SavedObjects objects;
    auto* attribute = objects.add_object()->add_attribute();
    attribute->set_full_name(name);
    attribute->set_checkpoint_key(key);
    return TensorMap{{"_CHECKPOINTABLE_OBJECT_GRAPH", Tensor::scalar(objects.SerializeAsString())},
                     {key, Tensor::scalar(value)}};
  };
  const auto save = [&](const std::string& name, const TensorMap& tensors) {
    REQUIRE(write_bundle({}, m.file(name), to_save(tensors)).ok());
    return m.file(name);
  };
  save("model/variables/variables", one_object("own/0", "net/kernel", 3));
  REQUIRE(write_npz(m.file("in.npz"), {{"x", Tensor::of<float>({1, 2})}}).ok());
  const auto run_with = [&](const std::string& checkpoint) {
    return run({"run", m.folder(), "--feeds", m.file("in.npz"), "--checkpoint", checkpoint});
  };
  for (const TensorMap& weights : {one_object("model/kernel", "net/kernel", 7), one_object("own/0", "other", 7),
                                   TensorMap{{"own/0", Tensor::scalar(7.f)}}}) {
    const Ended ended = run_with(save("weights", weights));
    CHECK(ended.out == "y float32[2] [7, 14]\n");
    const std::string out = m.file("exported");
    const Ended exported =
        run({"export", m.folder(), out, "--signature", "serving_default", "--checkpoint", m.file("weights")});
    INFO(exported.err);
    REQUIRE(exported.status == 0);
    CHECK(run({"run", out, "--feeds", m.file("in.npz")}).out == "y float32[2] [7, 14]\n");
    std::filesystem::remove_all(out);
  }
  CHECK(run_with(save("other", one_object("model/kernel", "other", 7))).status == 1);
}

}  // namespace troupe::testing
