// SPDX-License-Identifier: Apache-2.0
// `troupe export` as its users run it: graphs and models to SavedModels, which `troupe run` reads back.
#include "tests/graph/saved_models.h"
#include "tests/system/cluster.h"
#include "troupe/npy.h"

namespace troupe::testing {
namespace {

using Catch::Contains;

struct Exports : SampleModel {
  Exports() {
    REQUIRE(write_npz(file("in.npz"), {{"x", Tensor::of<float>({1, 2})}}).ok());
    write("g.pbtxt", R"(
      node { name: 'x' op: 'Placeholder' attr { key: 'dtype' value { type: DT_FLOAT } }
             attr { key: 'shape' value { shape { dim { size: -1 } } } } }
      node { name: 'two' op: 'Const' attr { key: 'dtype' value { type: DT_FLOAT } }
             attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape { } float_val: 2 } } } }
      node { name: 'w' op: 'VarHandleOp' attr { key: 'dtype' value { type: DT_FLOAT } }
             attr { key: 'shape' value { shape { } } } }
      node { name: 'init' op: 'AssignVariableOp' input: 'w' input: 'two' attr { key: 'dtype' value { type: DT_FLOAT } } }
      node { name: 'read' op: 'ReadVariableOp' input: 'w' attr { key: 'dtype' value { type: DT_FLOAT } } }
      node { name: 'y' op: 'Mul' input: 'x' input: 'read' attr { key: 'T' value { type: DT_FLOAT } } })");
  }
  Ended exported(std::vector<std::string> more) const {
    more.insert(more.begin(), "export");
    return run(more);
  }
  /// What the model's default signature makes of [1, 2].
  std::string called(const std::string& model) const {
    const Ended ended = run({"run", file(model), "--signature", "serving_default", "--feeds", file("in.npz")});
    INFO(ended.err);
    CHECK(ended.status == 0);
    return ended.out;
  }
};

}  // namespace

TEST_CASE("troupe export makes a SavedModel of a graph and its weights") {
  const Exports e;
  const std::vector<std::string> signature = {"--inputs", "x", "--outputs", "y=y:0"};
  const auto of_graph = [&](const std::string& out, std::vector<std::string> more) {
    std::vector<std::string> all = {e.file("g.pbtxt"), e.file(out)};
    all.insert(all.end(), signature.begin(), signature.end());
    all.insert(all.end(), more.begin(), more.end());
    return e.exported(all);
  };
  const Ended first = of_graph("one", {"--init", "init"});
  INFO(first.err);
  CHECK(first.status == 0);
  CHECK(first.out ==
        e.file("one") + ": a SavedModel\nsignature serving_default\n  input x float32 [?]\n  output y float32 [?]\n");
  CHECK(e.called("one") == "y float32[2] [2, 4]\n");
  e.write_weights("w.ckpt", 5);
  CHECK(of_graph("five", {"--checkpoint", e.file("w.ckpt")}).status == 0);
  CHECK(e.called("five") == "y float32[2] [5, 10]\n");
  check_error(of_graph("five", {"--init", "init"}), 1, {"five", "is there already"});
  check_error(of_graph("none", {}), 1, {"1 variable is without a value: 'w'"});
  CHECK_FALSE(std::filesystem::exists(e.file("none")));
}

TEST_CASE("troupe export keeps a model's signatures and assets, with other weights") {
  const Exports e;
  e.write_weights("w.ckpt", 7);
  const Ended ended = e.exported({e.folder(), e.file("new"), "--checkpoint", e.file("w.ckpt")});
  INFO(ended.err);
  CHECK(ended.status == 0);
  std::filesystem::remove_all(e.folder());
  CHECK(e.called("new") == "y float32[2] [7, 14]\n");
  CHECK_THAT(run({"run", e.file("new"), "--signature", "vocabulary"}).out, Contains("one two"));
  const Ended one = e.exported({e.file("new"), e.file("some"), "--signature", "vocabulary"});
  INFO(one.err);
  CHECK(one.status == 0);
  const Ended shown = run({"inspect", e.file("some")});
  CHECK_THAT(shown.out, Contains("signature vocabulary") && !Contains("serving_default") && Contains("words.txt"));
}

TEST_CASE("troupe export says in one line what is wrong") {
  const Exports e;
  const std::string g = e.file("g.pbtxt"), out = e.file("out");
  check_error(e.exported({g, out}), 1, {"no signatures", "--outputs"});
  check_error(e.exported({g, out, "--inputs", "x"}), 1, {"--inputs needs --outputs"});
  check_error(e.exported({g, out, "--outputs", "y"}), 1, {"'x'", "not among its inputs"});
  check_error(e.exported({g, out, "--outputs", "z=gone:0"}), 1, {"--outputs z=gone:0"});
  check_error(e.exported({g, out, "--inputs", "x", "--outputs", "a=y,a=read"}), 1, {"'a' is given twice"});
  check_error(e.exported({g, out, "--inputs", "x", "--outputs", "init"}), 1, {"--outputs init", "no such output"});
  check_error(e.exported({g, out, "--inputs", "x", "--outputs", "y", "--init", "gone"}), 1, {"init 'gone'"});
  check_error(e.exported({g, out, "--inputs", "x", "--outputs", "y", "--tags", "serve"}), 1, {"--tags"});
  check_error(e.exported({e.folder(), out, "--signature", "gone"}), 1, {"'serving_default', 'vocabulary'"});
  check_error(e.exported({e.file("nothing"), out}), 1, {"nothing"});
  CHECK_FALSE(std::filesystem::exists(out));
  CHECK_THAT(e.exported({"--help"}).out, Contains("--on-load") && Contains("SavedModel"));
}

}  // namespace troupe::testing
