// SPDX-License-Identifier: Apache-2.0
// What graphs of a cluster's client may do to the files of a task: nothing outside its data folders, by any op.
#include <filesystem>

#include "tests/actors/socket_cluster.h"
#include "tests/engine/fixtures.h"

using namespace troupe;
using Catch::Contains;

namespace {

Tensor text(const std::string& value) { return Tensor::scalar(value); }
Tensor texts(const std::string& value) { return Tensor::of<std::string>({value}); }

/// A task with such data folders, and graphs on it.
struct FilesTask {
  explicit FilesTask(std::vector<std::string> folders) : cluster(1, false) {
    cluster.of_task = [folders = std::move(folders)](ClusterOptions& own, int) { own.data_folders = folders; };
    cluster.start(0);
    engine = cluster.client();
  }
  /// What each op that opens files says of these: empty, or the error's message.
  std::map<std::string, std::string> try_all(const std::string& folder) {
    ++tries;
    using Build = std::function<const Node*(const Scope& s)>;
    const auto at = [folder](const Scope& s, const std::string& name) { return s.constant(text(folder + "/" + name)); };
    const auto read = [at](const char* reader, const char* name, Attrs attrs = {}) -> Build {
      return [=](const Scope& s) {
        const Output queue = s.op("FIFOQueueV2", {}, {{"component_types", std::vector<DType>{DType::kString}}});
        const Node* const put = s.node("QueueEnqueueV2", {queue, at(s, name)});
        return s.after({put}).node("ReaderReadV2", {s.op(reader, {}, attrs), queue});
      };
    };
    const std::map<std::string, Build> all = {
        {"ReadFile", [&](const Scope& s) { return s.node("ReadFile", {at(s, "lines")}); }},
        {"WriteFile",
         [&](const Scope& s) {
           return s.node("WriteFile", {at(s, "new/file"), s.constant(text("x"))});
         }},
        {"MatchingFiles", [&](const Scope& s) { return s.node("MatchingFiles", {at(s, "*")}); }},
        {"PrintV2",
         [&](const Scope& s) {
           return s.node("PrintV2", {s.constant(text("x"))}, {{"output_stream", "file://" + folder + "/printed"}});
         }},
        {"SaveV2",
         [&](const Scope& s) {
           return s.node("SaveV2", {at(s, "saved"), s.constant(texts("v")), s.constant(texts("")),
                                    s.constant(Tensor::scalar(1.f))});
         }},
        {"Save",
         [&](const Scope& s) {
           return s.node("Save", {at(s, "saved1"), s.constant(texts("v")), s.constant(Tensor::scalar(1.f))});
         }},
        {"RestoreV2",
         [&](const Scope& s) {
           return s.node("RestoreV2", {at(s, "kept"), s.constant(texts("v")), s.constant(texts(""))},
                         {{"dtypes", std::vector<DType>{DType::kFloat32}}});
         }},
        {"Restore",
         [&](const Scope& s) {
           return s.node("Restore", {at(s, "kep*"), s.constant(text("v"))}, {{"dt", DType::kFloat32}});
         }},
        {"MergeV2Checkpoints",
         [&](const Scope& s) {
           return s.node("MergeV2Checkpoints", {s.constant(texts(folder + "/old")), at(s, "merged")},
                         {{"delete_old_dirs", false}});
         }},
        {"TextLineReaderV2", read("TextLineReaderV2", "lines")},
        {"WholeFileReaderV2", read("WholeFileReaderV2", "lines")},
        {"TFRecordReaderV2", read("TFRecordReaderV2", "records")},
        {"FixedLengthRecordReaderV2", read("FixedLengthRecordReaderV2", "lines", {{"record_bytes", int64_t{1}}})},
        {"InitializeTableFromTextFileV2",
         [&](const Scope& s) {
           const Output table =
               s.op("HashTableV2", {}, {{"key_dtype", DType::kString}, {"value_dtype", DType::kInt64}});
           return s.node("InitializeTableFromTextFileV2", {table, at(s, "lines")},
                         {{"key_index", int64_t{-2}}, {"value_index", int64_t{-1}}});
         }},
        {"CacheDataset",
         [&](const Scope& s) {
           const Attrs numbers = {{"output_types", std::vector<DType>{DType::kInt64}},
                                  {"output_shapes", std::vector<PartialShape>{PartialShape::scalar()}}};
           const auto number = [&](int64_t n) { return s.constant(Tensor::scalar(n)); };
           const Output range = s.op("RangeDataset", {number(0), number(1), number(1)}, numbers);
           const Output cached = s.op("CacheDataset", {range, at(s, "cached")}, numbers);
           return s.node("DatasetToSingleElement", {cached}, numbers);
         }},
        {"FixedUnigramCandidateSampler",
         [&](const Scope& s) {
           return s.node("FixedUnigramCandidateSampler", {s.constant(Tensor::of<int64_t>({0}, {1, 1}))},
                         {{"num_true", int64_t{1}},
                          {"num_sampled", int64_t{1}},
                          {"unique", false},
                          {"range_max", int64_t{2}},
                          {"vocab_file", folder + "/counts"}});
         }},
    };
    std::map<std::string, std::string> out;
    for (const auto& [op, build] : all) {
      Graph graph(engine->ops());
      // Resources go by their nodes' names, and those of other calls stay.
      const Scope scope = Scope(graph).scope(fmt::format("try_{}", tries)).device("/job:worker/task:0/cpu:0");
      const Node* const node = build(scope);
      INFO(op << (scope.status().ok() ? "" : ": " + scope.status().error().str()));
      REQUIRE(scope.status().ok());
      Session session(*engine, graph);
      const auto result = session.run(std::vector<Feed>{}, {}, {node});
      out[op] = result.ok() ? "" : result.error().message;
    }
    return out;
  }
  SocketCluster cluster;
  std::unique_ptr<Engine> engine;
  int tries = 0;
};

/// What the ops above read; MergeV2Checkpoints takes "old" away.
void fill(const std::string& folder) {
  std::filesystem::create_directories(folder);
  const auto engine = Engine::create({.cpu_threads = {1}}).value();
  Graph graph(engine->ops());
  const Scope s(graph);
  const auto write = [&](const char* name, const std::string& bytes) {
    std::ofstream(folder + "/" + name, std::ios::binary) << bytes;
  };
  write("lines", "one\ntwo\n");
  write("counts", "a,1\nb,2\n");
  const std::string empty_record("\0\0\0\0\0\0\0\0\x29\x03\x98\x07\xd8\xea\x82\xa2", 16);
  write("records", empty_record);
  Session session(*engine, graph);
  for (const char* name : {"kept", "old"}) {
    const Node* const save = s.node("SaveV2", {s.constant(text(folder + "/" + name)), s.constant(texts("v")),
                                               s.constant(texts("")), s.constant(Tensor::scalar(1.f))});
    REQUIRE(session.run(std::vector<Feed>{}, {}, {save}).ok());
  }
}

size_t files_in(const std::string& folder) {
  const std::filesystem::recursive_directory_iterator all(folder);
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

}  // namespace

TEST_CASE("each op that opens files works in a data folder, and is refused outside of it") {
  const TemporaryDirectory directory;
  const std::string data = directory.file("data"), outside = directory.file("outside");
  fill(data), fill(outside);
  FilesTask task({data});
  for (const auto& [op, error] : task.try_all(data)) {
    CAPTURE(op);
    CHECK(error == "");
  }
  const size_t files = files_in(outside);
  for (const std::string& path : {outside, data + "/../outside"})
    for (const auto& [op, error] : task.try_all(path)) {
      CAPTURE(op);
      CHECK_THAT(error,
                 Contains("'" + path + "/") && Contains("is not in a data folder of this task (--data): '" + data));
    }
  CHECK(files_in(outside) == files);
}

TEST_CASE("a task without data folders opens no file") {
  const TemporaryDirectory directory;
  const std::string folder = directory.file("here");
  fill(folder);
  const size_t files = files_in(folder);
  FilesTask task({});
  for (const auto& [op, error] : task.try_all(folder)) {
    CAPTURE(op);
    CHECK_THAT(error, Contains("is not in a data folder of this task (--data): it has none"));
  }
  CHECK(files_in(folder) == files);
}

TEST_CASE("a data folder that is not there is an error as a task starts") {
  SocketCluster cluster(1, false);
  cluster.of_task = [](ClusterOptions& own, int) { own.data_folders = {"/no/such/folder"}; };
  const Status started = cluster.try_start(0);
  REQUIRE_FALSE(started.ok());
  CHECK_THAT(started.error().message, Contains("/no/such/folder"));
}
