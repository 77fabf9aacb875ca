// SPDX-License-Identifier: Apache-2.0
// The rules of simplification, one by one, and where each does not hold.
#include "graph/passes/simplify.h"

#include "tests/graph/passes/pass_fixture.h"

using namespace troupe;

namespace {

struct SimplifyFixture : test::PassFixture {
  std::string simple(Output fetch, std::vector<Output> fed = {}) {
    return after(only(&GraphPasses::simplify_arithmetic), fetch, std::move(fed));
  }
  Output ints(std::initializer_list<int32_t> v) { return s.constant(Tensor::of<int32_t>(v)); }
};

}  // namespace

TEST_CASE("what checks a shape leaves where the shape is known to fit") {
  SimplifyFixture f;
  const Output x = f.placeholder("x", {2, -1}), vague = f.placeholder("vague", PartialShape::unknown());
  const auto otherwise = [&](Output value, PartialShape shape) {
    return f.simple(f.s.op("PlaceholderWithDefault", {value}, {{"shape", std::move(shape)}}));
  };
  CHECK(otherwise(x, {2, -1}) == "x");
  CHECK(otherwise(vague, PartialShape::unknown()) == "vague");
  CHECK(otherwise(x, {2, 3}) == "PlaceholderWithDefault(x)");
  CHECK(otherwise(vague, {-1}) == "PlaceholderWithDefault(vague)");
  CHECK(f.simple(f.s.op("LoopCond", {f.placeholder("b", PartialShape::scalar(), DType::kBool)})) == "b");
  const Output any = f.placeholder("any", PartialShape::unknown(), DType::kBool);
  CHECK(f.simple(f.s.op("LoopCond", {any})) == "LoopCond(any)");
}

TEST_CASE("neutral elements leave") {
  SimplifyFixture f;
  const Output x = f.placeholder("x", {2, -1}), i = f.placeholder("i", {}, DType::kInt32);
  const Output one = f.s.constant(1.f), zero = f.s.constant(0.f), negative = f.s.constant(-0.f);
  for (const char* op : {"Mul", "RealDiv", "Div", "Pow"}) CHECK(f.simple(f.s.op(op, {x, one})) == "x");
  CHECK(f.simple(f.s.op("Mul", {one, x})) == "x");
  CHECK(f.simple(f.s.op("RealDiv", {one, x})) != "x");
  CHECK(f.simple(f.s.op("Sub", {x, zero})) == "x");
  CHECK(f.simple(f.s.op("Sub", {zero, x})) != "x");
  CHECK(f.simple(f.s.op("AddV2", {x, negative})) == "x");
  CHECK(f.simple(f.s.op("AddV2", {negative, x})) == "x");
  const Output none = f.s.constant(0), single = f.s.constant(1);
  CHECK(f.simple(f.s.op("AddV2", {i, none})) == "i");
  CHECK(f.simple(f.s.op("Mul", {i, single})) == "i");
  CHECK(f.simple(f.s.op("FloorDiv", {i, single})) == "i");
  CHECK(f.simple(f.s.op("FloorDiv", {x, one})) == "FloorDiv(x, float32[] 1)");
  const Output b = f.placeholder("b", {}, DType::kBool), yes = f.s.constant(true), no = f.s.constant(false);
  CHECK(f.simple(f.s.op("LogicalAnd", {b, yes})) == "b");
  CHECK(f.simple(f.s.op("LogicalOr", {no, b})) == "b");
  CHECK(f.simple(f.s.op("LogicalAnd", {b, no})) != "b");
}

TEST_CASE("negative zero and larger shapes are respected") {
  SimplifyFixture f;
  const Output x = f.placeholder("x", {3}), u = f.placeholder("u", PartialShape());
  CHECK(f.simple(f.s.op("AddV2", {x, f.s.constant(0.f)})) == "AddV2(x, float32[] 0)");
  CHECK(f.simple(f.s.op("Sub", {x, f.s.constant(-0.f)})) == "Sub(x, float32[] -0)");
  const Output ones = f.s.constant(Tensor::of<float>({1, 1, 1})), row = f.s.constant(Tensor::of<float>({1}));
  const Output grid = f.s.constant(Tensor::of<float>({1, 1, 1}, Shape{1, 3}));
  CHECK(f.simple(f.s.op("Mul", {x, ones})) == "x");
  CHECK(f.simple(f.s.op("Mul", {x, row})) == "x");
  CHECK(f.simple(f.s.op("Mul", {x, grid})) != "x");
  CHECK(f.simple(f.s.op("Mul", {u, f.s.constant(1.f)})) == "u");
  CHECK(f.simple(f.s.op("Mul", {u, row})) != "u");
}

TEST_CASE("identities, pairs and casts leave; those that lose something stay") {
  SimplifyFixture f;
  const Output x = f.placeholder("x", {2}), i = f.placeholder("i", {}, DType::kInt32);
  CHECK(f.simple(f.s.op("Identity", {f.s.op("StopGradient", {x})})) == "x");
  CHECK(f.simple(f.s.op("IdentityN", {i})) == "i");
  CHECK(f.simple(f.s.node("IdentityN", {x, i})->out(1)) == "IdentityN(x, i):1");  // who reads i waits for x
  CHECK(f.simple(f.s.op("Neg", {f.s.op("Identity", {f.s.op("Neg", {x})})})) == "x");
  const auto cast = [&](Output o, DType to) { return f.s.op("Cast", {o}, {{"DstT", to}}); };
  CHECK(f.simple(cast(x, DType::kFloat32)) == "x");
  CHECK(f.simple(cast(cast(x, DType::kFloat64), DType::kFloat32)) == "x");
  CHECK(f.simple(cast(cast(x, DType::kFloat16), DType::kFloat32)) == "Cast(Cast(x))");
  CHECK(f.simple(cast(cast(i, DType::kFloat64), DType::kInt32)) == "i");
  CHECK(f.simple(cast(cast(i, DType::kFloat32), DType::kInt32)) == "Cast(Cast(i))");
  CHECK(f.simple(cast(cast(i, DType::kUInt64), DType::kInt32)) == "Cast(Cast(i))");
  CHECK(f.simple(f.s.op("AddN", {x})) == "x");
  CHECK(f.simple(f.s.op("ConcatV2", {x, f.s.constant(0)})) == "x");
}

TEST_CASE("what is fed, waits for others or is read through a feed stays") {
  SimplifyFixture f;
  const Output x = f.placeholder("x", {2});
  const Output one = f.s.named("one").constant(1.f);
  const Output product = f.s.named("product").op("Mul", {x, one}), twice = f.s.op("Neg", {f.s.op("Neg", {product})});
  CHECK(f.simple(twice) == "x");
  CHECK(f.simple(twice, {one}) == "Mul(x, one)");
  CHECK(f.simple(twice, {product}) == "product");
  const Node* first = f.s.node("NoOp", {});
  CHECK(f.simple(f.s.after({first}).op("Identity", {x})) == "Identity(x)");
  const Output late = f.s.after({first}).op("Neg", {x});
  CHECK(f.simple(f.s.op("Neg", {late})) == "Neg(Neg(x))");
  CHECK(f.simple(f.s.op("Mul", {x, f.s.after({first}).constant(1.f)})) == "Mul(x, Const)");
}

TEST_CASE("transpositions join, reshapes give way to the last") {
  SimplifyFixture f;
  const Output x = f.placeholder("x", {2, 3, 4}), u = f.placeholder("u", {-1, 3});
  const auto transpose = [&](Output o, std::initializer_list<int32_t> p) {
    return f.s.op("Transpose", {o, f.ints(p)});
  };
  CHECK(f.simple(transpose(x, {0, 1, 2})) == "x");
  CHECK(f.simple(transpose(transpose(x, {2, 0, 1}), {1, 2, 0})) == "x");
  CHECK(f.simple(transpose(transpose(x, {2, 0, 1}), {2, 0, 1})) == "Transpose(x, int32[3] [1, 2, 0])");
  CHECK(f.simple(transpose(u, {1, 0})) == "Transpose(u, int32[2] [1, 0])");
  const auto reshape = [&](Output o, std::initializer_list<int32_t> p) { return f.s.op("Reshape", {o, f.ints(p)}); };
  CHECK(f.simple(reshape(x, {2, 3, 4})) == "x");
  CHECK(f.simple(reshape(reshape(x, {6, 4}), {24})) == "Reshape(x, int32[1] [24])");
  CHECK(f.simple(reshape(reshape(x, {6, 4}), {2, 3, 4})) == "x");
  const Output empty = f.placeholder("empty", {0, 6});
  CHECK(f.simple(reshape(reshape(empty, {2, -1}), {0, -1})) ==
        "Reshape(Reshape(empty, int32[2] [2, -1]), int32[2] [0, -1])");
  CHECK(f.simple(reshape(reshape(u, {2, 3}), {-1})) == "Reshape(Reshape(u, int32[2] [2, 3]), int32[1] [-1])");
  CHECK(f.simple(f.s.op("Squeeze", {f.s.op("ExpandDims", {x, f.s.constant(0)})})) == "x");
  CHECK(f.simple(f.s.op("Tile", {x, f.ints({1, 1, 1})})) == "x");
  CHECK(f.simple(f.s.op("Tile", {x, f.ints({1, 2, 1})})) != "x");
  CHECK(f.simple(f.s.op("Sum", {x, f.ints({})})) == "x");
  CHECK(f.simple(f.s.op("Sum", {x, f.ints({0})})) != "x");
}

TEST_CASE("small powers are products") {
  SimplifyFixture f;
  const Output x = f.placeholder("x", {2}), h = f.placeholder("h", {2}, DType::kFloat16);
  const auto power = [&](float y) { return f.s.op("Pow", {x, f.s.constant(y)}); };
  CHECK(f.simple(power(2)) == "Square(x)");
  CHECK(f.simple(power(3)) == "Mul(Square(x), x)");
  CHECK(f.simple(power(-1)) == "Reciprocal(x)");
  CHECK(f.simple(power(0.5f)) == "Pow(x, float32[] 0.5)");
  CHECK(f.simple(f.s.op("Pow", {h, f.s.constant(Tensor::scalar(float16(2.f)))})) == "Pow(h, float16[] 2)");
}

TEST_CASE("passes find what the others leave") {
  SimplifyFixture f;
  const Output x = f.placeholder("x", {2}), one = f.s.op("AddV2", {f.s.constant(0.5f), f.s.constant(0.5f)});
  const Output a = f.s.op("Exp", {f.s.op("Mul", {x, one})}), b = f.s.op("Exp", {x});
  CHECK(f.after({.fuse_elementwise = false}, f.s.op("Sub", {a, b})) == "Sub(Exp(x), Exp(x))");
  const Output fetches[] = {a, b};
  StepGraph step(f.graph, {}, fetches, {});
  run_passes(step, {}, [&](const Node& n, std::span<const Tensor> in) { return f.compute(n, in); });
  CHECK(step.now(a) == step.now(b));
  CHECK(step.nodes().size() == 2);
}
