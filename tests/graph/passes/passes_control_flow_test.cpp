// SPDX-License-Identifier: Apache-2.0
// Passes over branches and loops: nothing moves from one frame to another, nor from a branch to where it always runs.
#include "graph/frames.h"
#include "tests/graph/passes/pass_fixture.h"
#include "troupe/control_flow.h"

using namespace troupe;

namespace {

struct Flow : test::PassFixture {
  /// The nodes that are left of what `fetches` and `targets` need, by op, after all passes but fusing, which would hide
  /// their names; their frames must fit.
  std::map<std::string, int> left(const Outputs& fetches, std::vector<const Node*> targets = {}) {
    INFO((s.ok() ? "" : s.status().error().str()));
    REQUIRE(s.ok());
    StepGraph step(graph, {}, fetches, targets);
    run_passes(step, {.fuse_elementwise = false},
               [this](const Node& n, std::span<const Tensor> in) { return compute(n, in); });
    auto frames = find_frames(step);
    INFO((frames.ok() ? "" : frames.error().str()));
    CHECK(frames.ok());
    std::map<std::string, int> ops_left;
    for (const Node* n : step.nodes()) ++ops_left[n->op().name()];
    return ops_left;
  }
};

}  // namespace

TEST_CASE("what is constant in one branch is not computed beside it") {
  Flow f;
  const Output p = f.placeholder("p", {}, DType::kBool), x = f.placeholder("x", {2});
  const Output y = cond(
      f.s, p,
      [&](const Scope& s) {
        return Outputs{s.op("AddV2", {s.constant(Tensor::of<float>({1, 2})), s.constant(3.f)})};
      },
      [&](const Scope& s) {
        return Outputs{s.op("Mul", {s.op("Identity", {x}), s.constant(1.f)})};
      })[0];
  const auto left = f.left({y});
  CHECK(left.at("AddV2") == 1);
  CHECK(left.at("Mul") == 1);
  CHECK(left.at("Merge") == 1);
}

TEST_CASE("the size of what may be dead is dead with it") {
  Flow f;
  const Output p = f.placeholder("p", {}, DType::kBool), x = f.placeholder("x", {2, 3});
  const Output y = cond(
      f.s, p, [&](const Scope& s) { return Outputs{s.op("Rank", {x})}; },
      [&](const Scope& s) { return Outputs{s.op("Size", {s.op("Neg", {x})})}; })[0];
  const auto left = f.left({y});
  CHECK(left.at("Rank") == 1);
  CHECK(left.at("Size") == 1);
}

TEST_CASE("a side of a Switch stands for an Identity of it, and who waited for that waits for the side") {
  Flow f;
  const Output p = f.placeholder("p", {}, DType::kBool), x = f.placeholder("x", {2}), y = f.placeholder("y", {2});
  const Node* sides = f.s.node("Switch", {x, p});
  const Output one = f.s.constant(1.f), zero = f.s.constant(0.f);
  const Output same = f.s.op("Identity", {sides->out(1)}), product = f.s.op("Mul", {sides->out(0), one});
  const Output nothing = f.s.op("Mul", {sides->out(0), zero});
  const Output a = f.s.after({same}).op("Neg", {y}), b = f.s.after({product}).op("Neg", {y});
  CHECK(f.after({.fuse_elementwise = false}, same) == "Switch(x, p):1");
  CHECK(f.after({.fuse_elementwise = false}, product) == "Switch(x, p)");
  CHECK(f.after({.fuse_elementwise = false}, nothing) == "Mul(Switch(x, p), float32[] 0)");
  const auto left = f.left({a, b});
  CHECK_FALSE(left.contains("Identity"));
  CHECK_FALSE(left.contains("Mul"));
  CHECK(left.at("Neg") == 2);  // each waits for a side of its own
  CHECK(f.left({a, f.s.after({f.s.op("Identity", {sides->out(1)})}).op("Neg", {y})}).at("Neg") == 1);
  const Outputs wanted = {a, b};
  StepGraph step(f.graph, {}, wanted, {});
  run_passes(step, {}, [&](const Node& n, std::span<const Tensor> in) { return f.compute(n, in); });
  const auto waits_for = [&](Output o) {
    Outputs out;
    step.for_each_control(*o.node, [&](const Output& before) { out.push_back(before); });
    return out;
  };
  CHECK(waits_for(a) == Outputs{sides->out(1)});
  CHECK(waits_for(b) == Outputs{sides->out(0)});
}

TEST_CASE("loops are left as loops, and equal nodes merge within their own alone") {
  Flow f;
  const Output x = f.placeholder("x", {}), outside = f.s.op("Exp", {x});
  const auto loop = [&](const Output& limit) {
    return while_loop(
        f.s, {f.s.constant(0.f), x},
        [&](const Scope& s, const Outputs& v) {
          return s.op("Less", {v[0], limit});
        },
        [&](const Scope& s, const Outputs& v) {
          const Output twice = s.op("AddV2", {s.op("Exp", {v[1]}), s.op("Exp", {v[1]})});
          const Output step = s.op("Mul", {s.constant(2.f), s.constant(0.5f)});
          return Outputs{s.op("AddV2", {v[0], step}), s.op("Identity", {s.op("Mul", {twice, s.op("Exp", {x})})})};
        });
  };
  const Outputs first = loop(f.s.constant(3.f)), second = loop(f.s.op("AddV2", {f.s.constant(1.f), f.s.constant(3.f)}));
  const auto left = f.left({first[1], second[1], outside});
  CHECK(left.at("Enter") == f.left({first[1]}).at("Enter") * 2);
  CHECK(left.at("Exit") == 2);
  CHECK(left.at("NextIteration") == 4);
  CHECK(left.at("Merge") == 4);
  CHECK(left.at("Exp") == 1 + 2 * 2);  // one outside; in each loop that of the value and that of x
  CHECK(left.at("Mul") == 2 * 2);      // 2 * 0.5 waits for its iteration
}

TEST_CASE("a loop that only a made node leads to is kept, back edges and all") {
  Flow f;
  const Output x = f.placeholder("x", {2, 3});
  const Outputs y = while_loop(
      f.s, {x, f.s.constant(0)},
      [&](const Scope& s, const Outputs& v) {
        return s.op("Less", {v[1], s.constant(3)});
      },
      [&](const Scope& s, const Outputs& v) {
        const Output cube = s.op("Neg", {s.op("Neg", {s.op("Neg", {v[0]})})});
        return Outputs{s.op("Identity", {s.op("Identity", {cube})}), s.op("AddV2", {v[1], s.constant(1)})};
      });
  const auto left = f.left({f.s.op("Pow", {y[0], f.s.constant(2.f)})});
  CHECK(left.at("Square") == 1);
  CHECK(left.at("Neg") == 1);
  CHECK_FALSE(left.contains("Pow"));
  CHECK(left.at("NextIteration") == 2);
}

TEST_CASE("constants that passes make for nodes of a loop are in it") {
  Flow f;
  const Output x = f.placeholder("x", {6, 40}), w = f.placeholder("w", {40, 40}), row = f.placeholder("row", {1, 40});
  const Output scale = f.s.constant(Tensor::of<float>({1, 2}));
  const Outputs y = while_loop(
      f.s, {x, f.placeholder("image", {2, 3, 4, 2}), f.s.constant(0)},
      [&](const Scope& s, const Outputs& v) {
        return s.op("Less", {v[2], s.constant(3)});
      },
      [&](const Scope& s, const Outputs& v) {
        const Output wide = s.constant(Tensor::of<int32_t>({2, 3, 40})),
                     flat = s.constant(Tensor::of<int32_t>({6, 40}));
        const Output biased = s.op("AddV2", {s.op("Identity", {s.op("MatMul", {v[0], w})}), row});
        const Output other = s.op("Reshape", {s.op("Exp", {v[0]}), wide});
        const Output residual = s.op("AddV2", {other, s.op("Reshape", {s.op("MatMul", {biased, w}), wide})});
        const auto outer = [&](Output a) {
          const Output thin =
              s.op("Slice", {a, s.constant(Tensor::of<int32_t>({0, 0})), s.constant(Tensor::of<int32_t>({6, 2}))});
          return s.op("MatMul", {thin, s.op("Neg", {thin})}, {{"transpose_b", true}});
        };
        const Output products = s.op("AddN", {outer(v[0]), outer(biased)});
        const Output out = s.op("MatMul", {products, s.op("Reshape", {residual, flat})});
        const Node* norm =
            s.node("FusedBatchNormV3", {v[1], scale, scale, s.op("Square", {scale}), scale}, {{"is_training", true}});
        const Output image = s.op("Relu", {s.op("AddV2", {norm->out(), v[1]})});
        return Outputs{out, image, s.op("AddV2", {v[2], s.constant(1)})};
      });
  const auto left = f.left({y[0], y[1]});
  CHECK(left.at("_FusedMatMul") == 2);
  CHECK(left.at("ConcatV2") == 2);
  CHECK(left.at("MatMul") == 2);
}
