// SPDX-License-Identifier: Apache-2.0
// What docs/programs.md promises of every program: exit status, one line for what is wrong, output that is lost.
#include "io/tfrecord.h"
#include "tests/system/program.h"
#include "tests/system/train_images.h"

namespace troupe::testing {
namespace {

const std::string kTroupe = "../cli/troupe", kExamples = "../examples/";
const char* const kNames[] = {"readme",         "first_graph",     "linear_regression",   "shared_loop",
                              "embed_async",    "data_parallel",   "hybrid_backup",       "pipeline",
                              "pipeline_async", "tensor_parallel", "model_parallel_lstm", "train_images",
                              "serving"};

/// One line on stderr with `words`, nothing on stdout, this status.
void check_refused(const std::string& path, std::vector<std::string> arguments, const std::string& words,
                   int status = 2) {
  Program program(path, arguments);
  const int ended = program.wait();
  INFO(path << ": " << program.out() << program.err());
  CHECK(ended == status);
  CHECK(program.out().empty());
  CHECK(std::ranges::count(program.err(), '\n') == 1);
  CHECK_THAT(program.err(), Catch::StartsWith(path.substr(path.rfind('/') + 1) + ": ") && Catch::Contains(words));
  CHECK(program.err().size() < 400);
}

TEST_CASE("a wrong command line is one line and status 2, of every program") {
  const std::string cluster = R"({"cluster": {"worker": ["unix:/nowhere/w"]}})";
  for (const char* name : kNames) {
    check_refused(kExamples + name, {"--nope"}, "--nope");
    check_refused(kExamples + name, {"surplus"}, "surplus");
  }
  check_refused(kTroupe, {"nope"}, "no subcommand 'nope'; there are run, ops, inspect, place");
  check_refused(kTroupe, {}, "there are run, ops, inspect, place");
  check_refused(kTroupe, {"run"}, "GRAPH");
  check_refused(kTroupe, {"run", "g", "--steps", "0"}, "--steps");
  check_refused(kTroupe, {"run", "g", "--deadline", "nan"}, "--deadline: Value nan is not a finite number");
  check_refused(kTroupe, {"run", "g", "--devices", "cpu=0"}, "--devices cpu=0");
  check_refused(kTroupe, {"run", "g", "--passes", "fuse"}, "--passes fuse: no graph pass 'fuse'");
  check_refused(kTroupe, {"place", "g", "--devices", "sim=2:speed=3"}, "'speed=3' is not a setting");
  check_refused(kTroupe, {"place", "g", "--link", "latency=-3"}, "'latency=-3'");
  check_refused(kTroupe, {"run", "g", "--cluster", cluster, "--silence", "300"},
                "--silence: 300 must be at least twice --heartbeat 200");
  check_refused(kExamples + "train_images", {"--lr", "nan"}, "--lr: Value nan is not a finite number");
  check_refused(kExamples + "train_images", {"--lr", "inf"}, "--lr: Value inf");
  check_refused(kExamples + "train_images", {"--lr", "-1"}, "--lr: Value -1 not in range");
  check_refused(kExamples + "train_images", {"--lr", "abc"}, "--lr: Value abc not in range");
  check_refused(kExamples + "train_images", {"--lr"}, "--lr");
  check_refused(kExamples + "train_images", {"--save-seconds", "nan"}, "--save-seconds");
  check_refused(kExamples + "train_images", {"--seed", "99999999999999999999"}, "out of range");
  check_refused(kExamples + "train_images", {"--resume", "--fresh"}, "--fresh");
  check_refused(kExamples + "linear_regression", {"--steps", "abc"}, "--steps: Value abc");
  check_refused(kExamples + "linear_regression", {"--rate", "nan"}, "--rate");
  check_refused(kExamples + "linear_regression", {"--steps"}, "--steps");
}

TEST_CASE("work that fails is one line and status 1") {
  const Directory empty;
  for (const char* name : {"data_parallel", "hybrid_backup", "pipeline", "pipeline_async", "tensor_parallel"})
    check_refused(kExamples + name, {"--data", empty.path.string()}, empty.path.string(), 1);
  check_refused(kExamples + "model_parallel_lstm", {"--text", (empty.path / "none").string()}, "none", 1);
  check_refused(kTroupe, {"inspect", (empty.path / "none").string()}, "none", 1);
}

TEST_CASE("--help tells the exit statuses") {
  std::vector<std::string> paths = {kTroupe};
  for (const char* name : kNames) paths.push_back(kExamples + name);
  for (const std::string& path : paths) {
    Program help(path, {"--help"});
    CHECK(help.wait() == 0);
    CHECK_THAT(help.out(), Catch::Contains("Exit status: 0 done"));
    CHECK(help.err().empty());
  }
  Program run(kTroupe, {"run", "--help"});
  CHECK(run.wait() == 0);
  CHECK_THAT(run.out(), Catch::Contains("Exit status: 0 done"));
}

TEST_CASE("output that nobody gets is an error with words and status 1") {
  const Stream out = GENERATE(Stream::kFull, Stream::kNoReader);
  const Data data;
  const std::vector<std::pair<std::string, std::vector<std::string>>> commands = {
      {kTroupe, {"ops"}},
      {kTroupe, {"ops", "MatMul"}},
      {kTroupe, {"--help"}},
      {kTroupe, {"--version"}},
      {kExamples + "readme", {}},
      {kExamples + "first_graph", {}},
      {kExamples + "linear_regression", {"--steps", "20"}},
      {kExamples + "data_parallel", {"--data", data.path.string(), "--updates", "101"}},
      {kExamples + "train_images", {"--help"}}};
  for (const auto& [path, arguments] : commands) {
    Program program(path, arguments, out);
    const int status = program.wait();
    INFO(path << " " << arguments.size() << ": " << program.err());
    CHECK(status == 1);
    CHECK(std::ranges::count(program.err(), '\n') == 1);
    CHECK_THAT(program.err(), Catch::Contains("cannot write to the standard output: ") &&
                                  Catch::Contains(out == Stream::kFull ? "No space left" : "Broken pipe"));
  }
  const Directory trained;
  Program training(kExamples + "train_images", arguments(data, trained, {"--epochs", "50"}), out);
  CHECK(training.wait() == 1);
  CHECK_THAT(training.err(), Catch::Contains("cannot write to the standard output"));
  CHECK(latest(trained).contains("global_step"));  // what was trained is not lost with its lines
}

TEST_CASE("a stream that is closed at the start does not become a file of the program") {
  const Data data;
  const Directory out;
  const auto closed = GENERATE(std::pair(Stream::kClosed, Stream::kRead), std::pair(Stream::kRead, Stream::kClosed),
                               std::pair(Stream::kClosed, Stream::kClosed));
  Program training(kExamples + "train_images", arguments(data, out, {"--epochs", "2"}), closed.first, closed.second);
  CHECK(training.wait() == 0);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(out.path / "events")) {
    ++files;
    auto reader = RecordReader::open(entry.path().string());
    REQUIRE(reader.ok());
    for (;;) {
      const auto record = reader->next();
      INFO((record.ok() ? std::string() : record.error().str()));
      REQUIRE(record.ok());
      if (!*record) break;
    }
  }
  CHECK(files == 1);
  CHECK(latest(out).contains("global_step"));
}

TEST_CASE("what is logged goes to stderr, results to stdout") {
  const Directory work;
  const fs::path graph = work.path / "g.pbtxt";
  std::ofstream(graph) << R"(
      node { name: 'words' op: 'Const' attr { key: 'dtype' value { type: DT_STRING } } attr { key: 'value' value {
             tensor { dtype: DT_STRING tensor_shape {} string_val: 'take care' } } } }
      node { name: 'log' op: 'PrintV2' input: 'words' attr { key: 'output_stream' value { s: 'log(warning)' } }
             attr { key: 'end' value { s: '' } } })";
  Program run(kTroupe, {"run", graph.string(), "--fetch", "words", "--target", "log"});
  CHECK(run.wait() == 0);
  CHECK_THAT(run.out(), Catch::StartsWith("words string[] ") && !Catch::Contains("warning"));
  CHECK_THAT(run.err(), Catch::Contains("[warning] take care"));
}

}  // namespace
}  // namespace troupe::testing
