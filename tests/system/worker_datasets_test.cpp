// SPDX-License-Identifier: Apache-2.0
// Datasets of troupe worker processes: --records and --lines, each task's shard of the files, and what is wrong with
// them.
#include <sys/stat.h>

#include <filesystem>

#include "io/tfrecord.h"
#include "tests/system/cluster.h"

namespace troupe::testing {
namespace {

using Catch::Contains;

/// The next element of a dataset of strings on each of the two workers: nodes a and b.
std::string two_readers(const std::string& dataset, const std::string& shape) {
  const std::string types =
      "attr { key: 'output_types' value { list { type: DT_STRING } } } "
      "attr { key: 'output_shapes' value { list { shape { " +
      shape + " } } } }";
  std::string out;
  for (const auto& [next, task] : {std::pair("a", "0"), std::pair("b", "1")}) {
    const std::string device = std::string("device: '/job:worker/task:") + task + "/cpu:0' ";
    out += "node { name: '" + std::string(next) + "_iterator' op: 'IteratorV2' " + device +
           "attr { key: 'shared_name' value { s: '" + dataset + "' } } attr { key: 'container' value { s: '' } } " +
           types + " } node { name: '" + next + "' op: 'IteratorGetNext' input: '" + next + "_iterator' " + device +
           types + " } ";
  }
  return out;
}

/// A file of the records, or lines, PREFIX0, PREFIX1 and so on.
void write_records(const Cluster& c, const std::string& name, const std::string& prefix, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += encode_record(prefix + std::to_string(i));
  c.write(name, out);
}

}  // namespace

TEST_CASE("cluster: two workers read three files of records by shard, each record once, for each client") {
  const Cluster c(2);
  write_records(c, "part-2.tfrecord", "z", 3);
  write_records(c, "part-0.tfrecord", "x", 2);
  write_records(c, "part-1.tfrecord", "y", 5);
  c.write("g.pbtxt", two_readers("train", ""));
  const std::vector<std::string> files = {"--records", "train=" + c.file("part-*.tfrecord")};
  const auto first = c.start(0, files), second = c.start(1, files);
  const auto steps = [&](const char* count) {
    return run({"run", c.file("g.pbtxt"), "--cluster", c.file("cluster.json"), "--fetch", "a,b", "--all-steps",
                "--steps", count});
  };
  for (int client = 0; client < 2; ++client) {
    const auto ended = steps("5");
    INFO(ended.err);
    CHECK(ended.status == 0);
    CHECK(ended.out ==
          "a string[5] [\"x0\", \"x1\", \"z0\", \"z1\", \"z2\"]\n"
          "b string[5] [\"y0\", \"y1\", \"y2\", \"y3\", \"y4\"]\n");
  }
  check_error(steps("6"), 1, {"out of range", "end of the dataset", "IteratorGetNext", "/job:worker/replica:0/task:"});
}

TEST_CASE("cluster: each client reads what files have when it comes, not when the last one went") {
  const Cluster c(2);
  write_records(c, "part-0.tfrecord", "x", 2);
  write_records(c, "part-1.tfrecord", "y", 2);
  c.write("g.pbtxt", two_readers("train", ""));
  const std::vector<std::string> files = {"--records", "train=" + c.file("part-*.tfrecord")};
  const auto first = c.start(0, files), second = c.start(1, files);
  const auto steps = [&] {
    return run({"run", c.file("g.pbtxt"), "--cluster", c.file("cluster.json"), "--fetch", "a,b", "--all-steps",
                "--steps", "2"});
  };
  const auto said = [](const std::string& b) {
    return "a string[2] [\"x0\", \"x1\"]\nb string[2] [\"" + b + "0\", \"" + b + "1\"]\n";
  };
  CHECK(steps().out == said("y"));
  REQUIRE(second->read_for(std::chrono::minutes(1), "has gone"));
  // Another file by that name, as a job that makes data anew leaves it.
  write_records(c, "new", "z", 2);
  std::filesystem::rename(c.file("new"), c.file("part-1.tfrecord"));
  CHECK(steps().out == said("z"));
  // What was missing is told once, and not again when it is there.
  std::filesystem::rename(c.file("part-1.tfrecord"), c.file("away"));
  check_error(steps(), 1, {"not found", "part-1.tfrecord", "IteratorGetNext 'b'"});
  std::filesystem::rename(c.file("away"), c.file("part-1.tfrecord"));
  CHECK(steps().out == said("z"));
}

TEST_CASE("cluster: workers share the lines of one file, in batches that go on over its end") {
  const Cluster c(2);
  c.write("text", "0\n1\n2\n3\n4\n5\n");
  c.write("g.pbtxt", two_readers("lines", "dim { size: 2 }"));
  const std::vector<std::string> files = {"--lines", "lines=" + c.file("text"), "--batch", "2", "--repeat"};
  const auto first = c.start(0, files), second = c.start(1, files);
  const auto ended = run(
      {"run", c.file("g.pbtxt"), "--cluster", c.file("cluster.json"), "--fetch", "a,b", "--all-steps", "--steps", "3"});
  INFO(ended.err);
  CHECK(ended.status == 0);
  CHECK(ended.out ==
        "a string[3,2] [[\"0\", \"2\"], [\"4\", \"0\"], [\"2\", \"4\"]]\n"
        "b string[3,2] [[\"1\", \"3\"], [\"5\", \"1\"], [\"3\", \"5\"]]\n");
}

TEST_CASE("cluster: what is wrong with a worker's datasets is one line that names the option") {
  const Cluster c(1);
  c.write("text", "line\n");
  const auto worker = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"worker", "--cluster", c.json, "--job", "worker"});
    return run(more);
  };
  const std::string text = c.file("text");
  check_error(worker({"--records", "train=" + c.file("none-*")}), 2, {"--records train=", "none-*", "no file matches"});
  check_error(worker({"--lines", "train=" + c.file("none/a")}), 2, {"--lines train=", "no file matches"});
  check_error(worker({"--lines", text}), 2, {"--lines", text, "NAME=PATTERN"});
  check_error(worker({"--lines", "=" + text}), 2, {"--lines", "NAME=PATTERN"});
  check_error(worker({"--records", "train="}), 2, {"--records", "NAME=PATTERN"});
  check_error(worker({"--lines", "a=" + text, "--lines", "a=" + text}), 2, {"--lines a=", "'a' already"});
  check_error(worker({"--records", "a=" + text, "--lines", "a=" + text}), 2, {"--lines a=", "'a' already"});
  check_error(worker({"--lines", "a=" + c.file("*/text")}), 2, {"--lines a=", "last part"});
  check_error(worker({"--lines", "a=" + text, "--batch", "0"}), 2, {"--batch"});
  check_error(worker({"--batch", "2"}), 2, {"--batch", "--records"});
  check_error(worker({"--repeat"}), 2, {"--repeat", "--records"});
  std::filesystem::create_directory(c.file("folder"));
  check_error(worker({"--records", "a=" + c.file("fold*")}), 2, {"--records a=", c.file("folder")});
  REQUIRE(::mkfifo(c.file("fifo").c_str(), 0600) == 0);
  check_error(worker({"--lines", "a=" + c.file("fifo")}), 2, {"--lines a=", c.file("fifo")});
  std::filesystem::create_symlink(c.file("nowhere"), c.file("link"));
  check_error(worker({"--records", "a=" + c.file("link")}), 2, {"--records a=", c.file("link"), "No such file"});
}

}  // namespace troupe::testing
