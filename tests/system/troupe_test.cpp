// SPDX-License-Identifier: Apache-2.0
// The program troupe as its users run it: graphs in and tensors out, exit status and the one line of an error.
#include <catch2/catch.hpp>

#include <sys/wait.h>

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
    const char* program = std::getenv("TROUPE");
    const std::string command =
        fmt::format("{} {} > {} 2> {}", program ? program : "../cli/troupe", arguments, file("stdout"), file("stderr"));
    const int status = std::system(command.c_str());
    REQUIRE(WIFEXITED(status));
    return {WEXITSTATUS(status), read(file("stdout")), read(file("stderr"))};
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
  check_error(c.run("run " + c.graph() + "--fetch summ:0"), {"fetch 'summ:0'", "sum"});
  check_error(c.run("run " + c.graph() + "--fetch init"), {"init", "no outputs"});
  check_error(c.run("run " + c.graph() + "--fetch v:0"), {"v:0", "is a resource"});
  check_error(c.run("run " + c.graph() + "--fetch x:0"), {"'x'", "needs a value"});
  check_error(c.run("run " + c.graph() + c.feeds() + "--fetch sum:0"), {"'more'", "no value yet"});
  check_error(c.run("run " + c.graph() + "--feeds " + c.file("none.npz") + " --fetch x:0"), {"none.npz"});
  check_error(c.run("run " + c.graph() + c.feeds() + "--fetch x:0 --devices gpu=1"), {"gpu=1", "cpu=N"});
  check_error(c.run("run " + c.graph() + c.feeds() + "--fetch x:0 --steps 0"), {"--steps"});
  check_error(c.run("run " + c.graph() + c.feeds() + "--fetch x:0 --passes fuse"), {"'fuse'", "fuse_elementwise"});
  check_error(c.run("run " + c.graph() + c.feeds() + "--fetch x:0 --out /nowhere/r.npz"), {"/nowhere/r.npz"});
  check_error(c.run("run"), {"GRAPH"});
  check_error(c.run(""), {"subcommand"});
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

}  // namespace troupe
