// SPDX-License-Identifier: Apache-2.0
// Checkpoints of all formats by what is there, and files that are something else.
#include "io/checkpoint_reader.h"

#include <sys/stat.h>

#include <filesystem>

#include "io/safetensors.h"
#include "io/slice_checkpoint.h"
#include "io/tensor_bundle.h"
#include "io/tfrecord.h"
#include "tests/io/saved_samples.h"
#include "tests/io/temporary_directory.h"
#include "troupe/checkpoint.h"

using namespace troupe;
using Catch::Contains;

TEST_CASE("a checkpoint is of the format that it is, whatever its name") {
  const TemporaryDirectory dir;
  const TensorMap tensors = {{"a", Tensor::of<float>({1, 2})}, {"b", Tensor::of<bool>({true, false})}};
  for (const auto kind : {CheckpointKind::kSafetensors, CheckpointKind::kBundle, CheckpointKind::kSlices}) {
    CAPTURE(to_string(kind));
    const std::string path = dir.file("model" + std::to_string(static_cast<int>(kind)));
    REQUIRE(write_checkpoint({}, kind, path, to_save(tensors)).ok());
    const auto reader = CheckpointReader::open({}, path);
    REQUIRE(reader.ok());
    CHECK(reader->kind() == kind);
    CHECK(reader->shards() == 1);
    const auto entries = reader->entries();
    REQUIRE(entries.size() == 2);
    CHECK(entries[0].name == "a");
    CHECK(entries[0].shape == Shape{2});
    CHECK(entries[0].bytes == 8);
    CHECK(reader->read("b", {})->identical(tensors.at("b")));
    CHECK(reader->read("a", *TensorSlice::parse("2 1,1"))->identical(Tensor::of<float>({2})));
    CHECK(reader->missing({"x", "a", "y"}) == std::vector<std::string>{"x", "y"});
  }
}

TEST_CASE("what is written one by one is the safetensors file that is written at once") {
  const TemporaryDirectory dir;
  TensorMap tensors = saved_samples();
  for (const auto& name : {"string", "text", "no texts", "layer/\xc3\xa4\xff/kernel"}) tensors.erase(name);
  REQUIRE(write_safetensors(dir.file("at once"), tensors).ok());
  REQUIRE(write_safetensors_file({}, dir.file("one by one"), to_save(tensors)).ok());
  CHECK(TemporaryDirectory::read(dir.file("at once")) == TemporaryDirectory::read(dir.file("one by one")));
  std::string bytes = TemporaryDirectory::read(dir.file("at once"));
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  const auto damaged = CheckpointReader::open({}, dir.write("bad", bytes));
  REQUIRE(damaged.ok());
  CHECK(damaged->read("scalar", {}).error().code == Code::kDataLoss);
  const Tensor row = Tensor::of<float>({1, 2}, {1, 2});
  CHECK_THAT(
      write_safetensors_file({}, dir.file("no"), std::vector{part_to_save("w", "2 2 0,1:-", row)}).error().message,
      Contains("'w'") && Contains("no parts"));
  CHECK_THAT(
      write_safetensors_file({}, dir.file("no"), to_save({{"s", Tensor::scalar<std::string>("")}})).error().message,
      Contains("string"));
  CHECK_FALSE(std::filesystem::exists(dir.file("no")));
}

TEST_CASE("a file of another kind is named for what it is") {
  const TemporaryDirectory dir;
  const auto told = [&](const std::string& bytes, const std::string& words) {
    const auto reader = CheckpointReader::open({}, dir.write("file", bytes));
    REQUIRE_FALSE(reader.ok());
    CHECK(reader.error().code == Code::kInvalidArgument);
    CHECK_THAT(reader.error().message, Contains("'" + dir.file("file") + "' is not a checkpoint but " + words));
  };
  told("", "empty");
  told(std::string("\x89HDF\r\n\x1a\n\0", 9), "an HDF5 file");
  told("PK\3\4zip", "a ZIP archive");
  told("\x93NUMPY..", "a NumPy array");
  told("\x1f\x8b..", "a gzip file");
  told("\x89PNG\r\n", "a PNG picture");
  told(std::string("\x20\0\0\0TFL3", 8), "a TensorFlow Lite model");
  told("GGUF", "a GGUF file");
  told("\x80\2}", "a Python pickle");
  told("model_checkpoint_path: \"model.ckpt-5\"\n", "the text that says which checkpoint is the latest");
  told("version https://git-lfs.github.com/spec/v1\n", "what Git LFS leaves");
  told("{\"a\": 1}", "JSON text");
  told("node { name: 'x' }\n", "text");
  told(encode_record("event"), "records (TFRecord");
  told("\n\x0d\n\1x\x12\x08Variable", "a graph (GraphDef)");
  told("\x08\1\x12\x10graph", "a SavedModel's graph");
  told(std::string("\n\5\0", 3), "something unknown");
  CHECK_THAT(CheckpointReader::open({}, dir.path()).error().message, Contains("a directory"));
  CHECK(CheckpointReader::open({}, dir.write("x.safetensors", "PK\3\4")).error().code == Code::kDataLoss);
  const auto missing = CheckpointReader::open({}, dir.file("none"));
  CHECK(missing.error().code == Code::kNotFound);
  CHECK_THAT(missing.error().message, Contains("'" + dir.file("none") + "'") && Contains("none.index"));
  REQUIRE(mkfifo(dir.file("pipe.index").c_str(), 0600) == 0);
  CHECK_THAT(CheckpointReader::open({}, dir.file("pipe")).error().message, Contains("a FIFO"));
}

TEST_CASE("no file of a checkpoint may lie outside the data folders") {
  const TemporaryDirectory dir;
  std::filesystem::create_directories(dir.file("in"));
  const TensorMap tensors = {{"a", Tensor::of<float>({1, 2})}};
  for (const char* folder : {"in", "out"})
    REQUIRE(write_checkpoint({}, CheckpointKind::kBundle, dir.file(folder) + "/m", to_save(tensors)).ok());
  const FileAccess access{make_posix_file_system(), *DataFolders::make({dir.file("in")})};
  const auto outside = Contains("is not in a data folder");
  CHECK(CheckpointReader::open(access, dir.file("in/m"))->read("a", {}).ok());
  CHECK_THAT(CheckpointReader::open(access, dir.file("out/m")).error().message, outside);
  CHECK_THAT(CheckpointReader::open(access, dir.file("in/../out/m")).error().message, outside);
  for (const auto kind : {CheckpointKind::kSafetensors, CheckpointKind::kBundle, CheckpointKind::kSlices})
    CHECK_THAT(write_checkpoint(access, kind, dir.file("out/new"), to_save(tensors)).error().message, outside);
  // A link to data elsewhere.
  std::filesystem::remove(dir.file("in/m.data-00000-of-00001"));
  std::filesystem::create_symlink(dir.file("out/m.data-00000-of-00001"), dir.file("in/m.data-00000-of-00001"));
  const auto linked = CheckpointReader::open(access, dir.file("in/m"));
  REQUIRE(linked.ok());
  CHECK_THAT(linked->read("a", {}).error().message, outside);
}
TEST_CASE("a folder stands for its latest checkpoint, or the only one") {
  const TemporaryDirectory dir;
  const auto save = [&](const std::string& name) {
    REQUIRE(write_bundle({}, dir.file(name), to_save({{"v", Tensor::scalar(1.f)}})).ok());
  };
  const auto found = [&](const std::string& folder = "") {
    const auto path = checkpoint_of_folder(dir.file(folder));
    return path.ok() ? std::filesystem::relative(*path, dir.path()).string() : path.error().message;
  };
  CHECK_THAT(found(), Contains("there is no checkpoint in the folder"));
  CHECK_THAT(found("nowhere"), Contains("cannot list"));
  save("model.ckpt-7");
  CHECK(found() == "model.ckpt-7");
  save("model.ckpt-12");
  CHECK_THAT(found(), Contains("has 2 checkpoints") && Contains("model.ckpt-12, ") && Contains("model.ckpt-7"));
  dir.write("checkpoint",
            "model_checkpoint_path: \"model.ckpt-7\"\nall_model_checkpoint_paths: \"model.ckpt-7\"\n"
            "last_preserved_timestamp: 1.5\n");
  CHECK(found() == "model.ckpt-7");
  // Absolute, and moved since.
  dir.write("checkpoint", "model_checkpoint_path: \"" + dir.file("model.ckpt-12") + "\"\n");
  CHECK(found() == "model.ckpt-12");
  dir.write("checkpoint", "model_checkpoint_path: \"/no/such/model.ckpt-7\"\n");
  CHECK(found() == "model.ckpt-7");
  dir.write("checkpoint", "model_checkpoint_path: \"gone\"\n");
  CHECK(found() == "gone");
  for (const char* text :
       {"", "all_model_checkpoint_paths: \"model.ckpt-7\"\n", "model_checkpoint_path: \"x", "\x01\x02"}) {
    dir.write("checkpoint", text);
    CHECK_THAT(found(), Contains("does not say which checkpoint is the latest"));
  }
  // Several files of the first format, which TensorFlow calls by a pattern.
  const std::string pattern = std::string("old-?????") + "-of-00002";  // in two, for ??- is a trigraph
  for (const char* path : {"", "/no/such/"}) {
    dir.write("checkpoint", "model_checkpoint_path: \"" + (path + pattern) + "\"\n");
    if (*path == '\0') CHECK(found() == pattern);
    for (const char* file : {"old-00000-of-00002", "old-00001-of-00002"})
      REQUIRE(write_slice_checkpoint({}, dir.file(file), to_save({{file, Tensor::scalar(1.f)}})).ok());
    CHECK(found() == pattern);
    const auto reader = CheckpointReader::open({}, *checkpoint_of_folder(dir.path()), true);
    REQUIRE(reader.ok());
    CHECK(reader->entries().size() == 2);
  }
  // A SavedModel, and a Checkpointer's folder.
  std::filesystem::create_directories(dir.file("model/variables"));
  save("model/variables/variables");
  CHECK(found("model") == "model/variables/variables");
  auto kept = Checkpointer::open(dir.file("kept"));
  REQUIRE(kept.ok());
  for (const int64_t step : {3, 20}) REQUIRE(kept->save({{"v", Tensor::scalar(1.f)}}, step).ok());
  CHECK(found("kept") == "kept/checkpoint-000000000020.safetensors");
}
