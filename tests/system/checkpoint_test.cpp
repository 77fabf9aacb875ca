// SPDX-License-Identifier: Apache-2.0
// `troupe checkpoint` as its users run it: lists, conversions between the formats, errors in one line.
#include <nlohmann/json.hpp>

#include "io/tensor_bundle.h"
#include "tests/io/saved_samples.h"
#include "tests/io/temporary_directory.h"
#include "tests/system/cluster.h"

namespace troupe::testing {
namespace {

using Catch::Contains;

Ended checkpoint_command(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "checkpoint");
  return run(arguments);
}

void check_refused(const Ended& ended, const std::string& words) {
  CHECK(ended.status == 1);
  CHECK(ended.out.empty());
  CHECK(std::ranges::count(ended.err, '\n') == 1);
  CHECK_THAT(ended.err, Catch::StartsWith("troupe: ") && Contains(words));
}

}  // namespace

TEST_CASE("troupe checkpoint converts between the formats, and what it lists stays the same") {
  const TemporaryDirectory dir;
  TensorMap tensors = saved_samples();
  for (const char* some : {"string", "text", "no texts", "layer/\xc3\xa4\xff/kernel", "bfloat16", "uint32", "uint64"})
    tensors.erase(some);
  REQUIRE(write_bundle({}, dir.file("model.ckpt"), to_save(tensors)).ok());
  const auto list = [&](const std::string& name) {
    const Ended ended = checkpoint_command({"list", dir.file(name), "--json"});
    INFO(ended.err);
    REQUIRE(ended.status == 0);
    return nlohmann::json::parse(ended.out);
  };
  const auto convert = [&](std::vector<std::string> arguments) {
    for (size_t i = 0; i < 2; ++i) arguments[i] = dir.file(arguments[i]);
    arguments.insert(arguments.begin(), "convert");
    const Ended ended = checkpoint_command(arguments);
    INFO(ended.err);
    CHECK(ended.status == 0);
  };
  convert({"model.ckpt", "a.safetensors"});
  convert({"a.safetensors", "b", "--to", "v1"});
  convert({"b", "c.ckpt"});
  convert({"c.ckpt.index", "d.ckpt.index"});
  CHECK(TemporaryDirectory::read(dir.file("model.ckpt.data-00000-of-00001")) ==
        TemporaryDirectory::read(dir.file("d.ckpt.data-00000-of-00001")));
  const auto first = list("model.ckpt");
  CHECK(first["format"] == "v2");
  CHECK(first["files"] == 1);
  REQUIRE(first["tensors"].size() == tensors.size());
  CHECK(first["tensors"][0] ==
        nlohmann::json::parse(R"({"bytes": 6, "dtype": "bool", "name": "bool", "parts": 1, "shape": [2, 3]})"));
  for (const auto& [name, format] : {std::pair("a.safetensors", "safetensors"), std::pair("b", "v1"),
                                     std::pair("c.ckpt", "v2"), std::pair("d.ckpt.data-00000-of-00001", "v2")}) {
    const auto other = list(name);
    CHECK(other["format"] == format);
    CHECK(other["tensors"] == first["tensors"]);
  }
}

TEST_CASE("troupe checkpoint list prints a line for each tensor") {
  const TemporaryDirectory dir;
  const Tensor row = Tensor::of<float>({1, 2}, {1, 2});
  std::vector<TensorToSave> tensors =
      to_save({{"b\n", *Tensor::zeros(DType::kFloat32, {300, 400})}, {"s", Tensor::of<std::string>({"x", "yz"})}});
  for (const char* slice : {"2 2 0,1:-", "2 2 1,1:-"}) tensors.push_back(part_to_save("weight", slice, row));
  REQUIRE(write_bundle({}, dir.file("m"), tensors).ok());
  const Ended ended = checkpoint_command({"list", dir.file("m")});
  CHECK(ended.status == 0);
  CHECK(ended.out == dir.file("m") +
                         ": a TensorFlow checkpoint (V2), 1 file of data\n"
                         "  b\\n     float32[300,400]  480,000 bytes\n"
                         "  s       string[2]         9 bytes\n"
                         "  weight  float32[2,2]      16 bytes in 2 parts\n"
                         "3 tensors, 120,006 elements, 480,025 bytes\n");
}

TEST_CASE("troupe checkpoint list gives names in JSON as they are") {
  const TemporaryDirectory dir;
  const std::vector<std::string> names = {"\x01", "a\nb", "a\\nb", "\xc3\xa4"};
  TensorMap tensors;
  for (const std::string& name : names) tensors[name] = Tensor::scalar(1.f);
  tensors["\xff"] = Tensor::scalar(1.f);
  REQUIRE(write_bundle({}, dir.file("m"), to_save(tensors)).ok());
  const Ended ended = checkpoint_command({"list", dir.file("m"), "--json"});
  REQUIRE(ended.status == 0);
  const auto listed = nlohmann::json::parse(ended.out)["tensors"];
  REQUIRE(listed.size() == 5);
  for (size_t i = 0; i < names.size(); ++i) CHECK(listed[i]["name"] == names[i]);
  CHECK(listed[4]["name"] == "\\xff");
}

TEST_CASE("troupe checkpoint convert --skip leaves out names that the format cannot hold") {
  const TemporaryDirectory dir;
  TensorMap tensors;
  for (const char* name : {"__metadata__", "a", "\xff"}) tensors[name] = Tensor::scalar(1.f);
  REQUIRE(write_bundle({}, dir.file("m"), to_save(tensors)).ok());
  check_refused(checkpoint_command({"convert", dir.file("m"), dir.file("s.safetensors")}),
                "cannot hold '__metadata__' float32[], '\\xff' float32[]");
  const Ended skipped = checkpoint_command({"convert", dir.file("m"), dir.file("s.safetensors"), "--skip"});
  CHECK(skipped.status == 0);
  CHECK(skipped.out == dir.file("s.safetensors") +
                           ": a safetensors file, 1 tensor\nleft out: '__metadata__' float32[]\n"
                           "left out: '\\xff' float32[]\n");
}

TEST_CASE("troupe checkpoint convert wants the name of a file") {
  const TemporaryDirectory dir;
  REQUIRE(write_bundle({}, dir.file("m"), to_save({{"a", Tensor::scalar(1.f)}})).ok());
  std::filesystem::create_directory(dir.file("out"));
  for (const std::string& to : {std::string(), dir.file("out/"), dir.file("out/."), dir.file("out/..")})
    check_refused(checkpoint_command({"convert", dir.file("m"), to}), "it must end in the name of a file");
  check_refused(checkpoint_command({"convert", dir.file("m"), dir.file("out"), "--to", "v1"}), "it is a folder");
  CHECK(std::filesystem::is_empty(dir.file("out")));
}

TEST_CASE("troupe checkpoint convert writes no file that would not be read by its name") {
  const TemporaryDirectory dir;
  for (const auto& [name, value] : {std::pair("new", 2.f), std::pair("old", 1.f)})
    REQUIRE(write_bundle({}, dir.file(name), to_save({{"a", Tensor::scalar(value)}})).ok());
  for (const char* format : {"v1", "safetensors"}) {
    for (const char* to : {"old", "new"})
      check_refused(checkpoint_command({"convert", dir.file("new"), dir.file(to), "--to", format}),
                    "'" + dir.file(to) + ".index' is there, which would be read in its stead");
    for (const char* to : {"other.index", "other.data-00000-of-00001"})
      check_refused(checkpoint_command({"convert", dir.file("new"), dir.file(to), "--to", format}),
                    "its name is that of a file of a TensorFlow checkpoint (V2)");
  }
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 4);
}

TEST_CASE("troupe checkpoint says in one line what is wrong, and leaves what was there") {
  const TemporaryDirectory dir;
  REQUIRE(write_bundle({}, dir.file("m"), to_save({{"s", Tensor::of<std::string>({"x"})}})).ok());
  check_refused(checkpoint_command({"list", dir.file("none")}), dir.file("none.index"));
  check_refused(checkpoint_command({"list", dir.write("x.h5", "\x89HDF\r\n\x1a\n")}),
                "is not a checkpoint but an HDF5 file");
  dir.write("s.safetensors", "before");
  check_refused(checkpoint_command({"convert", dir.file("m"), dir.file("s.safetensors")}),
                "a safetensors file cannot hold 's' string[1] of '" + dir.file("m") + "' (--skip");
  CHECK(TemporaryDirectory::read(dir.file("s.safetensors")) == "before");
  const std::string kept = dir.file("kept.ckpt");
  REQUIRE(write_bundle({}, kept,
                       to_save({{"_CHECKPOINTABLE_OBJECT_GRAPH", Tensor::scalar<std::string>("objects")},
                                {"a", Tensor::scalar(1.f)},
                                {"s", Tensor::scalar<std::string>("x")}}))
              .ok());
  const Ended skipped = checkpoint_command({"convert", kept, dir.file("s.safetensors"), "--skip"});
  CHECK(skipped.out == dir.file("s.safetensors") +
                           ": a safetensors file, 1 tensor\nleft out: '_CHECKPOINTABLE_OBJECT_GRAPH' string[]\n"
                           "left out: 's' string[]\n");
  for (const char* end : {".index", ".data-00000-of-00001"}) std::filesystem::remove(kept + end);
  std::string data = TemporaryDirectory::read(dir.file("m.data-00000-of-00001"));
  data.back() = 'y';
  dir.write("m.data-00000-of-00001", data);
  check_refused(checkpoint_command({"convert", dir.file("m"), dir.file("new")}), "check sum");
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 4);
  CHECK(checkpoint_command({"convert", dir.file("m"), dir.file("new"), "--to", "v3"}).status == 2);
  CHECK(checkpoint_command({}).status == 2);
  CHECK_THAT(checkpoint_command({"convert", "--help"}).out, Contains("--to") && Contains("FROM"));
}

}  // namespace troupe::testing
