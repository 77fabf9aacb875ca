// SPDX-License-Identifier: Apache-2.0
// Folding of constants: what is folded, and what is left to the step.
#include "graph/passes/fold_constants.h"

#include "tests/graph/passes/pass_fixture.h"

using namespace troupe;

namespace {

struct FoldFixture : test::PassFixture {
  std::string folded(Output fetch, std::vector<Output> fed = {}) {
    return after(only(&GraphPasses::fold_constants), fetch, std::move(fed));
  }
};

}  // namespace

TEST_CASE("what follows from constants becomes one, through several nodes and outputs") {
  FoldFixture f;
  const Output x = f.placeholder("x", {});
  const Output a = f.s.op("AddV2", {f.s.constant(2.f), f.s.constant(3.f)});
  const Output b = f.s.op("Neg", {a});
  CHECK(f.folded(f.s.op("Mul", {x, b})) == "Mul(x, float32[] -5)");
  CHECK(f.folded(b) == "float32[] -5");
  const Output both = f.s.constant(Tensor::of<int32_t>({4, 1}));
  const Node* axes = f.s.node("BroadcastGradientArgs", {both, f.s.constant(Tensor::of<int32_t>({4, 3}))});
  CHECK(f.folded(axes->out(0)) == "int32[1] [1]");
  CHECK(f.folded(axes->out(1)) == "int32[0] []");
}

TEST_CASE("sizes of known shapes are constants, unless something stateful is waited for with them") {
  FoldFixture f;
  const Output x = f.placeholder("x", {2, 3}), unknown = f.placeholder("u", {-1, 3});
  CHECK(f.folded(f.s.op("Shape", {f.s.op("Neg", {x})})) == "int32[2] [2, 3]");
  CHECK(f.folded(f.s.op("Size", {x})) == "int32[] 6");
  CHECK(f.folded(f.s.op("Rank", {unknown})) == "int32[] 2");
  CHECK(f.folded(f.s.op("Shape", {unknown})) == "Shape(u)");
  const Output sizes = f.s.constant(Tensor::of<int32_t>({2, 3}));
  const Output random = f.s.op("RandomUniform", {sizes}, {{"dtype", DType::kFloat32}});
  CHECK(f.folded(f.s.op("Shape", {f.s.op("Neg", {random})})) == "Shape(Neg(RandomUniform(int32[2] [2, 3])))");
}

TEST_CASE("a fed constant is not folded, nor a shape trusted that was inferred from it") {
  FoldFixture f;
  const Output x = f.placeholder("x", {6});
  const Output c = f.s.named("c").constant(Tensor::of<int32_t>({2, 3}));
  const Output doubled = f.s.op("Mul", {c, c}), shape = f.s.op("Shape", {f.s.op("Reshape", {x, c})});
  CHECK(f.folded(doubled) == "int32[2] [4, 9]");
  CHECK(f.folded(doubled, {c}) == "Mul(c, c)");
  CHECK(f.folded(shape) == "int32[2] [2, 3]");
  CHECK(f.folded(shape, {c}) == "Shape(Reshape(x, c))");
  const Output next = f.s.op("Neg", {doubled});
  CHECK(f.folded(next, {doubled}) == "Neg(Mul)");
}

TEST_CASE("what fails, grows, waits or has state is left to the step") {
  FoldFixture f;
  const Output one = f.s.constant(1), zero = f.s.constant(0);
  CHECK(f.folded(f.s.op("FloorDiv", {one, zero})) == "FloorDiv(int32[] 1, int32[] 0)");
  const Output many = f.s.constant(Tensor::of<int32_t>({1 << 20}));
  CHECK(f.folded(f.s.op("Fill", {many, f.s.constant(1.f)})) == "Fill(int32[1] [1048576], float32[] 1)");
  const Output few = f.s.constant(Tensor::of<int32_t>({3}));
  CHECK(f.folded(f.s.op("Fill", {few, f.s.constant(1.f)})) == "float32[3] [1, 1, 1]");
  const Node* first = f.s.node("NoOp", {});
  CHECK(f.folded(f.s.after({first}).op("Neg", {one})) == "Neg(int32[] 1)");
  CHECK(f.folded(f.s.op("Neg", {f.s.after({first}).constant(1)})) == "Neg(Const)");
  CHECK(f.folded(f.s.op("RandomUniform", {few}, {{"dtype", DType::kFloat32}})) == "RandomUniform(int32[1] [3])");
}

TEST_CASE("a large constant may become another that is no larger") {
  FoldFixture f;
  std::vector<float> values(100000, 1.f);
  const Output c = f.s.constant(Tensor::of<float>(std::span<const float>(values)));
  CHECK(f.folded(f.s.op("Neg", {c})).starts_with("float32[100000] [-1"));
  CHECK(f.folded(f.s.op("Cast", {c}, {{"DstT", DType::kFloat64}})).starts_with("Cast("));
}
