// SPDX-License-Identifier: Apache-2.0
// Examples with their nodes at random on three worker processes print what they print with all on one, and leave the
// same bits in their variables. hybrid_backup has ops of its own, which workers do not know; readme and user_actor know
// no clusters.
#include <map>
#include <regex>

#include "tests/system/cluster.h"
#include "tests/system/train_images.h"
#include "troupe/engine.h"

namespace troupe::testing {
namespace {

struct ScatteredExample {
  std::string name;
  std::vector<std::string> arguments = {};
  bool repeats = true;  // whenever it is run, it does the same in the same order
};

/// An example that has run, and the variables that it left on the tasks.
struct Left {
  Ended ended;
  std::map<std::string, Tensor> variables;
};

Left run_scattered(const Cluster& cluster, const ScatteredExample& example, int seed, const std::string& data) {
  std::vector<std::string> arguments = {"--cluster", cluster.file("cluster.json"), "--scatter", std::to_string(seed)};
  arguments.insert(arguments.end(), example.arguments.begin(), example.arguments.end());
  for (const char* const reads : {"data_parallel", "pipeline", "pipeline_async", "tensor_parallel", "train_images"})
    if (example.name == reads) arguments.insert(arguments.end(), {"--data", data});
  if (example.name == "train_images") arguments.insert(arguments.end(), {"--fresh", "--out", cluster.file("out")});
  Left out{run(arguments, ("../examples/" + example.name).c_str()), {}};
  EngineOptions options{.cpu_threads = {1}};
  options.cluster.spec = cluster.json;
  auto engine = Engine::create(options);
  INFO((engine.ok() ? "" : engine.error().str()));
  REQUIRE(engine.ok());
  auto snapshot = (*engine)->snapshot().get();
  INFO((snapshot.ok() ? "" : snapshot.error().str()));
  REQUIRE(snapshot.ok());
  out.variables = std::move(snapshot->variables);
  (*engine)->reset_container("");
  return out;
}

/// What it prints, without times and what depends on them.
std::string without_times(const std::string& text) {
  static const std::regex lines("[^\n]*( waited |after about |; looked )[^\n]*\n"), times("[0-9.]+ (ms|s|images/s)\\b");
  return std::regex_replace(std::regex_replace(text, lines, ""), times, "-");
}

void check_scattered(const std::vector<ScatteredExample>& examples) {
  const Cluster one(1), three(3);
  const auto alone = one.start(0, {"--quiet"});
  const std::unique_ptr<Program> workers[] = {three.start(0, {"--quiet"}), three.start(1, {"--quiet"}),
                                              three.start(2, {"--quiet"})};
  const Data data;
  int seed = 20;
  for (const ScatteredExample& example : examples) {
    std::string line = example.name + " --scatter " + std::to_string(++seed);
    for (const std::string& argument : example.arguments) line += " " + argument;
    const Left got = run_scattered(three, example, seed, data.path.string());
    INFO(line << "\n" << got.ended.out << got.ended.err);
    CHECK(got.ended.status == 0);
    CHECK(got.ended.err.empty());
    if (!example.repeats) continue;
    const Left expected = run_scattered(one, example, seed, data.path.string());
    CHECK(without_times(got.ended.out) == without_times(expected.ended.out));
    CHECK(got.variables.size() == expected.variables.size());
    for (const auto& [name, value] : expected.variables) {
      INFO(name);
      CHECK((got.variables.contains(name) && got.variables.at(name).identical(value)));
    }
  }
}

}  // namespace

TEST_CASE("scatter: examples of single graphs over three workers give the bits of one") {
  check_scattered({{"first_graph"},
                   {"shared_loop", {"--size", "8"}},
                   {"linear_regression", {"--steps", "40"}},
                   {"embed_async", {"--steps", "40"}},
                   {"embed_coroutine", {"--steps", "200"}},
                   {"model_parallel_lstm", {"--steps", "1", "--parts", "2"}},
                   {"tensor_parallel", {"--steps", "3", "--parts", "2"}}});
}

TEST_CASE("scatter: examples of trainers over three workers give the bits of one") {
  check_scattered({{"pushed_data", {"--points", "80"}, false},
                   {"data_parallel", {"--mode", "sync", "--updates", "3"}},
                   {"data_parallel", {"--mode", "ring", "--updates", "3"}},
                   {"data_parallel", {"--mode", "zero", "--updates", "3"}},
                   {"data_parallel", {"--mode", "local", "--updates", "3"}},
                   {"data_parallel", {"--mode", "async", "--updates", "3"}, false},
                   {"data_parallel", {"--mode", "hybrid", "--updates", "3"}, false}});
}

TEST_CASE("scatter: examples of pipelines and the main job over three workers give the bits of one") {
  check_scattered(
      {{"pipeline", {"--batches", "1"}},
       {"pipeline_async", {"--batches", "1"}, false},
       {"train_images", {"--replicas", "2", "--mode", "sync", "--epochs", "1", "--limit", "128", "--model", "mlp"}}});
}

TEST_CASE("scatter: nodes go to all tasks and none to the client, whatever devices they ask for") {
  const Cluster c(3);
  const std::unique_ptr<Program> workers[] = {c.start(0), c.start(1), c.start(2)};
  std::string graph =
      "node { name: 'n0' op: 'Const' device: '/cpu:0' attr { key: 'dtype' value { type: DT_FLOAT } } attr { key: "
      "'value' value { tensor { dtype: DT_FLOAT tensor_shape { } float_val: 3 } } } }\n";
  for (int i = 1; i <= 20; ++i)
    graph += "node { name: 'n" + std::to_string(i) + "' op: 'Neg' input: 'n" + std::to_string(i - 1) +
             "' device: '/job:worker/task:0/cpu:0' attr { key: 'T' value { type: DT_FLOAT } } }\n";
  c.write("g.pbtxt", graph);
  const auto ended = run({"run", c.file("g.pbtxt"), "--fetch", "n20", "--passes", "none", "--cluster",
                          c.file("cluster.json"), "--scatter", "5", "--trace", c.file("trace.json")});
  INFO(ended.err);
  CHECK(ended.out == "n20 float32[] 3\n");
  const std::string trace = c.read(c.file("trace.json"));
  for (const char* task : {"worker/replica:0/task:0", "worker/replica:0/task:1", "worker/replica:0/task:2"})
    CHECK_THAT(trace, Catch::Contains(task));
  const std::regex at_client("\"name\":\"n[0-9]+\"[^}]*localhost");
  CHECK_FALSE(std::regex_search(trace, at_client));
  const auto wrong = run({"run", c.file("g.pbtxt"), "--fetch", "n20", "--scatter", "-1"});
  CHECK(wrong.status == 2);
}

}  // namespace troupe::testing
