// SPDX-License-Identifier: Apache-2.0
// The program troupe as its users run it: graphs in and tensors out, exit status and the one line of an error.
#include <catch2/catch.hpp>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/io/temporary_directory.h"
#include "troupe/npy.h"

namespace troupe {
namespace {

using Catch::Contains;

/// A directory with a graph that adds x to a variable in each step, and a way to run the program in it.
struct Command : TemporaryDirectory {
  struct Ended {
    int status = -1;
    std::string out, err;
  };
  Command() {
    write("g.pbtxt", R"(
      node { name: 'x' op: 'Placeholder' device: '/device:GPU:0' attr { key: 'dtype' value { type: DT_FLOAT } } }
      node { name: 'zero' op: 'Const' attr { key: 'dtype' value { type: DT_FLOAT } }
             attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape { dim { size: 2 } } float_val: 0 } } } }
      node { name: 'v' op: 'VarHandleOp' attr { key: 'dtype' value { type: DT_FLOAT } }
             attr { key: 'shape' value { shape { dim { size: 2 } } } } }
      node { name: 'set' op: 'AssignVariableOp' input: 'v' input: 'zero' attr { key: 'dtype' value { type: DT_FLOAT } } }
      node { name: 'init' op: 'NoOp' input: '^set' }
      node { name: 'more' op: 'AssignAddVariableOp' input: 'v' input: 'x' attr { key: 'dtype' value { type: DT_FLOAT } } }
      node { name: 'sum' op: 'ReadVariableOp' input: 'v' input: '^more' attr { key: 'dtype' value { type: DT_FLOAT } } }
    )");
    REQUIRE(write_npz(file("feeds.npz"), {{"x:0", Tensor::of<float>({1, 10})}}).ok());
  }
  Ended run(const std::string& arguments) const {
    const int status = run_into(file("stdout"), arguments);
    return {status, read(file("stdout")), read(file("stderr"))};
  }
  int run_into(const std::string& out, const std::string& arguments) const {
    const char* program = std::getenv("TROUPE");
    const std::string command =
        fmt::format("{} {} > {} 2> {}", program ? program : "../cli/troupe", arguments, out, file("stderr"));
    const int status = std::system(command.c_str());
    REQUIRE(WIFEXITED(status));
    return WEXITSTATUS(status);
  }
  std::string graph(const char* name = "g.pbtxt") const { return file(name) + " "; }
  std::string feeds() const { return "--feeds " + file("feeds.npz") + " "; }
};

/// One line on stderr that has each of these, nothing on stdout, a status other than 0.
void check_error(const Command::Ended& ended, const std::vector<std::string>& parts) {
  CHECK(ended.status != 0);
  CHECK(ended.out.empty());
  CHECK_THAT(ended.err, Catch::StartsWith("troupe: "));
  CHECK(std::ranges::count(ended.err, '\n') == 1);
  for (const std::string& part : parts) CHECK_THAT(ended.err, Contains(part));
}

}  // namespace

TEST_CASE("troupe run initialises once, feeds every step and writes the last step's fetches") {
  const Command c;
  const auto ended = c.run("run " + c.graph() + c.feeds() + "--init init --steps 3 --fetch sum:0,x:0 --out " +
                           c.file("out.npz") + " --devices cpu=2");
  CHECK(ended.err.empty());
  REQUIRE(ended.status == 0);
  auto out = read_npz(c.file("out.npz"));
  REQUIRE(out.ok());
  REQUIRE(out->size() == 2);
  CHECK(out->at("sum:0").identical(Tensor::of<float>({3, 30})));
  CHECK(out->at("x:0").identical(Tensor::of<float>({1, 10})));
}

TEST_CASE("troupe run --all-steps stacks the steps on a first axis") {
  const Command c;
  REQUIRE(c.run("run " + c.graph() + c.feeds() +
                "--all-steps --init init --steps 3 --fetch sum:0 --target more --out " + c.file("out.npz"))
              .status == 0);
  CHECK(read_npz(c.file("out.npz"))->at("sum:0").identical(Tensor::of<float>({1, 10, 2, 20, 3, 30}, {3, 2})));
}

TEST_CASE("troupe run without --out prints, and --trace writes every step") {
  const Command c;
  const auto ended =
      c.run("run " + c.graph() + c.feeds() + "--init init --steps 2 --fetch sum --trace " + c.file("trace.json"));
  CHECK(ended.out == "sum float32[2] [2, 20]\n");
  const auto json = nlohmann::json::parse(TemporaryDirectory::read(c.file("trace.json")));
  CHECK(std::ranges::count_if(json, [](const auto& e) { return e["name"] == "more" && e["ph"] == "b"; }) == 2);
}

TEST_CASE("troupe run --passes chooses what is rewritten") {
  const Command c;
  c.write("twice.pbtxt", R"(
      node { name: 'x' op: 'Placeholder' attr { key: 'dtype' value { type: DT_FLOAT } } }
      node { name: 'y' op: 'Neg' input: 'x' attr { key: 'T' value { type: DT_FLOAT } } }
      node { name: 'z' op: 'Neg' input: 'y' attr { key: 'T' value { type: DT_FLOAT } } })");
  const auto runs_y = [&](const std::string& options) {
    const auto ended =
        c.run("run " + c.graph("twice.pbtxt") + c.feeds() + "--fetch z " + options + "--trace " + c.file("t.json"));
    CHECK(ended.out == "z float32[2] [1, 10]\n");
    const auto json = nlohmann::json::parse(TemporaryDirectory::read(c.file("t.json")));
    return std::ranges::any_of(json, [](const auto& e) { return e["name"] == "y"; });
  };
  CHECK(runs_y("--passes none "));
  CHECK(runs_y("--passes merge_common,fold_constants "));
  CHECK(!runs_y("--passes fold_constants,simplify_arithmetic "));
  CHECK(!runs_y("--passes all "));
  CHECK(!runs_y(""));
}

TEST_CASE("troupe run says in one line what is wrong") {
  const Command c;
  c.write("bad.pb", "nonsense");
  c.write("unknown.pbtxt",
          "node { name: 'a' op: 'Nope' } node { name: 'b' op: 'Other' } node { name: 'c' op: 'Nope' }"
          "node { name: 'd' op: 'NoOp' }");
  check_error(c.run("run " + c.graph("unknown.pbtxt") + "--target d"), {"Nope (a, c)", "Other (b)"});
  check_error(c.run("run " + c.graph("bad.pb") + "--target d"), {"no GraphDef"});
  check_error(c.run("run " + c.graph("gone.pb") + "--target d"), {"gone.pb"});
  check_error(c.run("run " + c.graph()), {"nothing to run"});
  c.write("model.keras", "PK\x03\x04 and more");
  check_error(c.run("run " + c.graph("model.keras")), {"a ZIP archive", "not a graph"});
  check_error(c.run("run " + c.graph() + "--fetch summ:0"), {"fetch 'summ:0'", "sum"});
  check_error(c.run("run " + c.graph() + "--fetch init"), {"init", "no outputs"});
  check_error(c.run("run " + c.graph() + "--fetch v:0"), {"v:0", "is a resource"});
  check_error(c.run("run " + c.graph() + "--fetch x:0"), {"'x'", "needs a value"});
  check_error(c.run("run " + c.graph() + c.feeds() + "--fetch sum:0"), {"'more'", "no value yet"});
  check_error(c.run("run " + c.graph() + "--feeds " + c.file("none.npz") + " --fetch x:0"), {"none.npz"});
  check_error(c.run("run " + c.graph() + c.feeds() + "--fetch x:0 --devices tpu=1"), {"tpu=1", "cpu=N", "gpu=N"});
  check_error(c.run("run " + c.graph() + c.feeds() + "--fetch x:0 --devices cpu=1+cpu=2"), {"cpu=1+cpu=2"});
  check_error(c.run("run " + c.graph() + c.feeds() + "--fetch x:0 --devices gpu=1+"), {"gpu=1+"});
  check_error(c.run("run " + c.graph() + c.feeds() + "--fetch x:0 --steps 0"), {"--steps"});
  check_error(c.run("run " + c.graph() + c.feeds() + "--fetch x:0 --steps 99999999999999999999"), {"--steps"});
  check_error(c.run("run " + c.graph() + c.feeds() + "--fetch x:0 --all-steps --steps 4611686018427387904"),
              {"fetch 'x:0'", "[4611686018427387904,2]"});
  check_error(c.run("run " + c.graph() + c.feeds() + "--fetch x:0 --passes fuse"), {"'fuse'", "fuse_elementwise"});
  check_error(c.run("run " + c.graph() + c.feeds() + "--fetch x:0 --out /nowhere/r.npz"), {"/nowhere/r.npz"});
  c.write("endless.pbtxt", R"(
      node { name: 'i' op: 'Const' attr { key: 'dtype' value { type: DT_INT32 } }
             attr { key: 'value' value { tensor { dtype: DT_INT32 tensor_shape {} int_val: 0 } } } }
      node { name: 'in' op: 'Enter' input: 'i' attr { key: 'T' value { type: DT_INT32 } }
             attr { key: 'frame_name' value { s: 'loop' } } }
      node { name: 'merge' op: 'Merge' input: 'in' input: 'next' attr { key: 'T' value { type: DT_INT32 } }
             attr { key: 'N' value { i: 2 } } }
      node { name: 'yes' op: 'Const' input: '^merge' attr { key: 'dtype' value { type: DT_BOOL } }
             attr { key: 'value' value { tensor { dtype: DT_BOOL tensor_shape {} bool_val: true } } } }
      node { name: 'more' op: 'LoopCond' input: 'yes' }
      node { name: 'switch' op: 'Switch' input: 'merge' input: 'more' attr { key: 'T' value { type: DT_INT32 } } }
      node { name: 'next' op: 'NextIteration' input: 'switch:1' attr { key: 'T' value { type: DT_INT32 } } }
      node { name: 'out' op: 'Exit' input: 'switch' attr { key: 'T' value { type: DT_INT32 } } })");
  check_error(c.run("run " + c.graph("endless.pbtxt") + "--fetch out --deadline 0.05"), {"deadline"});
  check_error(c.run("run " + c.graph("endless.pbtxt") + "--init out --deadline 0.05"), {"deadline"});
  check_error(c.run("run " + c.graph("endless.pbtxt") + "--fetch out --deadline -1"), {"--deadline"});
  check_error(c.run("run"), {"GRAPH"});
  check_error(c.run(""), {"subcommand"});
}

TEST_CASE("what cannot be written is an error, and nothing but a file is taken away") {
  const Command c;
  const std::string full = c.file("full");
  REQUIRE(symlink("/dev/full", full.c_str()) == 0);
  check_error(c.run("run " + c.graph() + c.feeds() + "--fetch x:0 --out " + full), {full, "No space left"});
  check_error(c.run("inspect " + c.graph() + "--dot " + full), {full, "No space left"});
  struct stat info;
  CHECK(lstat(full.c_str(), &info) == 0);
  for (const std::string& prints :
       {std::string("ops"), "inspect " + c.graph(), "run " + c.graph() + c.feeds() + "--fetch x:0"}) {
    CHECK(c.run_into("/dev/full", prints) == 1);
    CHECK_THAT(TemporaryDirectory::read(c.file("stderr")), Catch::StartsWith("troupe: cannot write"));
  }
}

TEST_CASE("troupe ops tells of one op or all") {
  const Command c;
  const auto one = c.run("ops ArgMax");
  CHECK(one.status == 0);
  CHECK_THAT(one.out, Contains("Tidx: type {int16, int32, int64} = int32") && Contains("gradient    none: ") &&
                          Contains("devices     cpu") && Contains("input: T, dimension: Tidx"));
  CHECK_THAT(c.run("ops MatMul").out, Contains("transpose_a: bool = false") && Contains("gradient    yes"));
  const auto all = c.run("ops");
  CHECK_THAT(all.out, Contains("\nMatMul\n") && Contains("\nResourceApplyAdam (stateful)\n"));
  CHECK_THAT(c.run("ops Assign").out, Contains("Read from graphs as AssignVariableOp, ReadVariableOp."));
  CHECK_THAT(all.out, Contains("\nWhile\n    Read from graphs as "));
  check_error(c.run("ops Matmul"), {"MatMul"});
  check_error(c.run("ops --page /nowhere"), {"/nowhere"});
  check_error(c.run("ops MatMul --page /nowhere"), {"--page"});
}

TEST_CASE("troupe inspect shows what goes in and comes out of a graph") {
  const Command c;
  const auto ended = c.run("inspect " + c.graph() + "--nodes --dot " + c.file("g.dot"));
  CHECK(ended.status == 0);
  CHECK_THAT(ended.out, Contains("7 nodes") && Contains("  x:0  float32 <unknown>") && Contains("sum:0  float32 [2]") &&
                            Contains("  v  float32 [2]") && Contains("parameters: 2 (variables: 1)") &&
                            Contains("AssignAddVariableOp  1 ") && Contains("(v:0, ^more) -> float32 [2]"));
  CHECK_THAT(TemporaryDirectory::read(c.file("g.dot")), Catch::StartsWith("digraph") && Contains("AssignVariableOp"));
  check_error(c.run("inspect " + c.graph("gone.pb")), {"gone.pb"});
}

TEST_CASE("what the names in a graph hold does not reach the terminal") {
  Command c;
  c.write("odd.pbtxt", R"(
    node { name: 'v' op: 'VarHandleOp' attr { key: 'dtype' value { type: DT_FLOAT } }
           attr { key: 'shape' value { shape { } } }
           attr { key: 'shared_name' value { s: 'all\n  is\033[2J well\000.' } } })");
  const auto shown = c.run("inspect " + c.graph("odd.pbtxt"));
  CHECK(shown.status == 0);
  CHECK_THAT(shown.out, Contains(R"(  all\n  is\x1b[2J well\x00.  float32 [])"));
  c.write("bad.pbtxt", R"(node { name: 'x' op: 'No\033[31m\nerror: such' })");
  check_error(c.run("inspect " + c.graph("bad.pbtxt")), {R"(No\x1b[31m\nerror: such)"});
}

namespace {

/// Two towers of products, each dear enough for a device of its own, and their sum.
const char* const kTowers = R"(
    node { name: 'x' op: 'Placeholder' attr { key: 'dtype' value { type: DT_FLOAT } }
           attr { key: 'shape' value { shape { dim { size: 128 } dim { size: 128 } } } } }
    node { name: 'a' op: 'MatMul' input: 'x' input: 'x' attr { key: 'T' value { type: DT_FLOAT } } }
    node { name: 'b' op: 'MatMul' input: 'a' input: 'a' attr { key: 'T' value { type: DT_FLOAT } } }
    node { name: 'c' op: 'MatMul' input: 'x' input: 'x' device: '/sim:1' attr { key: 'T' value { type: DT_FLOAT } } }
    node { name: 'd' op: 'Neg' input: 'c' attr { key: 'T' value { type: DT_FLOAT } }
           attr { key: '_class' value { list { s: 'loc:@c' } } } }
    node { name: 'sum' op: 'AddV2' input: 'b' input: 'd' attr { key: 'T' value { type: DT_FLOAT } } })";

/// The line of a node in what --explain prints.
std::string line_of(const std::string& out, const std::string& node) {
  const size_t at = out.find("\n  " + node + " ");
  return at == std::string::npos ? "" : out.substr(at + 1, out.find('\n', at + 1) - at - 1);
}

}  // namespace

TEST_CASE("troupe place tells where nodes go, why, and what a step takes") {
  const Command c;
  c.write("towers.pbtxt", kTowers);
  const std::string devices =
      "--devices sim=3:flops=1e9,bandwidth=1e12,launch=0,memory=16M --link bandwidth=1G,latency=10 ";
  const auto ended = c.run("place " + c.graph("towers.pbtxt") + devices + "--explain");
  CHECK(ended.err.empty());
  REQUIRE(ended.status == 0);
  CHECK_THAT(ended.out, Contains("5 nodes on 3 devices"));
  // A product takes 2 * 128^3 ns; its result 128^2 * 4 over the link.
  CHECK_THAT(line_of(ended.out, "a"), Contains("sim:0") && Contains("finishes soonest; estimated 4194.3 us") &&
                                          Contains("would end on sim:2 4194.3 us"));
  CHECK_THAT(line_of(ended.out, "b"), Contains("sim:0") && Contains("4194.3 us - 8388.6 us") && Contains("'a'"));
  CHECK_THAT(line_of(ended.out, "c"), Contains("sim:1") && Contains("asked for (/sim:1)"));
  CHECK_THAT(line_of(ended.out, "d"), Contains("sim:1") && Contains("with another 'c'"));
  CHECK_THAT(ended.out, Contains("critical path: 3 nodes") && Contains("  sim:1 -> sim:0  1  64.0 KiB") &&
                            Contains("of 16.0 MiB") && Contains("predicted step: 8405.0 us") &&
                            Contains("  sim:2  0  0.0 %"));
  const auto short_one = c.run("place " + c.graph("towers.pbtxt") + devices + "--fetch d");
  CHECK_THAT(short_one.out, Contains("2 nodes on 3 devices") && !Contains("critical path"));
  CHECK_THAT(c.run("place " + c.graph("towers.pbtxt") + devices + "--by-hand --target sum").out,
             Contains("  sim:0  3 ") && Contains("  sim:2  0 "));
  const auto large = c.run("place " + c.graph("towers.pbtxt") + "--devices sim=2:memory=1k");
  CHECK_THAT(large.out, Contains("too much") && Contains("predicted step"));
  CHECK(large.status != 0);
  CHECK_THAT(large.err,
             Contains("does not fit the memory") && Contains("device:sim:1 needs 196608 bytes and has 1024"));
}

TEST_CASE("troupe place knows devices of other machines") {
  const Command c;
  c.write("graph.pbtxt", R"(
      node { name: 'full' op: 'NoOp' device: '/job:worker/replica:0/task:17/device:GPU:1' }
      node { name: 'task' op: 'NoOp' device: '/job:worker/task:17' input: '^full' }
      node { name: 'gpu' op: 'NoOp' device: '/gpu:*' input: '^task' }
      node { name: 'ps' op: 'NoOp' device: '/job:ps' input: '^gpu' })");
  const std::string place = "place " + c.graph("graph.pbtxt") + "--strict --explain --devices /job:ps/cpu=1";
  const auto ended = c.run(place + "+/job:worker/task:17/gpu=2:flops=10e12+/job:worker/task:18/cpu=1");
  CHECK(ended.err.empty());
  REQUIRE(ended.status == 0);
  const std::string worker = "/job:worker/replica:0/task:17/device:gpu:";
  CHECK_THAT(line_of(ended.out, "full"), Contains(worker + "1"));
  CHECK_THAT(line_of(ended.out, "task"), Contains(worker));
  CHECK_THAT(line_of(ended.out, "gpu"), Contains(worker));
  CHECK_THAT(line_of(ended.out, "ps"), Contains("/job:ps/replica:0/task:0/device:cpu:0"));
  const auto soft = c.run("place " + c.graph("graph.pbtxt") + "--explain --devices cpu=1");
  CHECK_THAT(line_of(soft.out, "ps"), Contains("cpu:0") && Contains("; /job:ps is not there"));
  check_error(c.run(place), {"'full'", "GPU:1", "there are: /job:ps/replica:0/task:0/device:cpu:0"});
}

TEST_CASE("troupe run --costs keeps what was measured, and place and the next run begin with it") {
  const Command c;
  c.write("towers.pbtxt", kTowers);
  std::vector<float> values(128 * 128, 0.01f);
  REQUIRE(write_npz(c.file("square.npz"), {{"x:0", Tensor::of<float>(std::span(values), {128, 128})}}).ok());
  const std::string run = "run " + c.graph("towers.pbtxt") + "--feeds " + c.file("square.npz") +
                          " --fetch sum --devices cpu=2 --passes none --costs " + c.file("costs.json") + " --steps ";
  const auto first = c.run(run + "4");
  CHECK(first.err.empty());
  REQUIRE(first.status == 0);
  const auto costs = nlohmann::json::parse(TemporaryDirectory::read(c.file("costs.json")));
  CHECK(costs["nodes"]["b"]["cpu"]["steps"] == 3);
  CHECK(costs["nodes"]["b"]["cpu"]["bytes"] == 128 * 128 * 4);
  const auto second = c.run(run + "30 --place");
  CHECK(second.status == 0);
  CHECK(second.out == first.out);
  CHECK(nlohmann::json::parse(TemporaryDirectory::read(c.file("costs.json")))["nodes"]["b"]["cpu"]["steps"] == 23);
  const auto placed =
      c.run("place " + c.graph("towers.pbtxt") + "--devices cpu=2 --explain --costs " + c.file("costs.json"));
  REQUIRE(placed.status == 0);
  CHECK_THAT(line_of(placed.out, "b"), Contains(", measured "));
  CHECK_THAT(placed.out, Contains("measured: 5 of 5 nodes"));
  c.write("other.pbtxt", "node { name: 'other' op: 'NoOp' }");
  const auto other = c.run("place " + c.graph("other.pbtxt") + "--costs " + c.file("costs.json"));
  CHECK_THAT(other.out, Contains("measured: 0 of 1 nodes"));
}

TEST_CASE("troupe place says in one line what is wrong") {
  const Command c;
  c.write("towers.pbtxt", kTowers);
  c.write("apart.pbtxt", R"(
      node { name: 'a' op: 'NoOp' device: '/cpu:0' }
      node { name: 'b' op: 'NoOp' device: '/cpu:1' attr { key: '_class' value { list { s: 'loc:@a' } } } })");
  c.write("costs.json", "{}");
  const std::string place = "place " + c.graph("towers.pbtxt");
  check_error(c.run("place " + c.graph("gone.pb")), {"gone.pb"});
  check_error(c.run(place + "--devices tpu=2"), {"tpu=2", "sim=N"});
  check_error(c.run(place + "--devices cpu=0"), {"cpu=0"});
  check_error(c.run(place + "--devices /task:one/cpu=1"), {"'task:one'", "number"});
  check_error(c.run(place + "--devices /cpu:1/cpu=1"), {"/cpu:1/cpu=1", "/job:NAME"});
  check_error(c.run(place + "--devices sim=2:speed=3"), {"'speed=3'", "flops"});
  check_error(c.run(place + "--devices sim=2:flops=fast"), {"'flops=fast'"});
  check_error(c.run(place + "--devices sim=2:flops=0"), {"'flops=0'"});
  check_error(c.run(place + "--devices sim=2:memory=-1G"), {"'memory=-1G'"});
  check_error(c.run(place + "--devices sim=2:launch=1e300"), {"'launch=1e300'"});
  check_error(c.run(place + "--devices sim=2:flops=1,flops=2"), {"'flops' is there twice"});
  check_error(c.run(place + "--link speed=1"), {"'speed=1'", "latency"});
  check_error(c.run(place + "--costs " + c.file("none.json")), {"none.json"});
  check_error(c.run(place + "--costs " + c.file("costs.json")), {"costs.json", "not a cost model"});
  check_error(c.run(place + "--fetch summ"), {"summ", "sum"});
  check_error(c.run(place + "--fetch d:4"), {"'d'", "1 outputs"});
  check_error(c.run(place + "--strict --devices cpu=2"), {"'c'", "/sim:1", "device:cpu:1"});
  check_error(c.run("place " + c.graph("apart.pbtxt") + "--strict --devices cpu=2"),
              {"'a' asks for /cpu:0", "'b' asks for /cpu:1 and is with 'a'"});
  check_error(c.run("run " + c.graph("towers.pbtxt") + "--fetch x --costs " + c.file("costs.json")),
              {"not a cost model"});
}

}  // namespace troupe
