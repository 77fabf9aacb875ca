// SPDX-License-Identifier: Apache-2.0
// _FusedElementwise: the same bits as the functions one by one, for every way an input may be read; bad programs.
#include <catch2/catch.hpp>

#include "graph/passes/fuse_elementwise.h"
#include "tests/ops/evaluate.h"

using namespace troupe;

namespace {

using Strings = std::vector<std::string>;
using Numbers = std::vector<int64_t>;

struct ElementwiseFixture {
  testing::Evaluator evaluator{2};
  Graph graph{testing::op_library()->ops};
  Scope s{graph};

  Output fused(std::vector<Output> args, Strings ops, Numbers operands) {
    return s.op("_FusedElementwise", std::move(args), {{"ops", std::move(ops)}, {"operands", std::move(operands)}});
  }
  void check_same(Output one, Output other) {
    INFO((s.ok() ? "" : s.status().error().str()));
    REQUIRE(s.ok());
    auto values = evaluator.run({one, other});
    INFO((values.ok() ? "" : values.error().str()));
    REQUIRE(values.ok());
    CHECK((*values)[0].identical((*values)[1]));
  }
  template <class T> Output values(Shape shape) {
    Tensor t = *Tensor::make(dtype_of<T>, shape);
    for (int64_t i = 0; i < t.elements(); ++i)
      t.mutable_data<T>()[i] = static_cast<T>((static_cast<double>(i * 7919 % 1013) - 500) / 250);
    return s.constant(std::move(t));
  }
};

}  // namespace

TEMPLATE_TEST_CASE("inputs are read as they lie, as scalars, rows, columns and anything that broadcasts", "", float,
                   double) {
  ElementwiseFixture f;
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{0, 7}, Shape{5, 7}, Shape{3, 40, 101}, Shape{2, 3, 4, 5},
                             Shape{2, 3, 700}, Shape{2, 130, 3}}) {
    INFO(shape.str());
    const Output x = f.values<TestType>(shape);
    std::vector<Shape> others = {{}, {1}, shape};
    for (int drop = 0; drop < shape.rank(); ++drop) {
      Shape one = shape, row(shape.dims().subspan(static_cast<size_t>(drop)));
      one.set(drop, 1);
      others.insert(others.end(), {one, row});
    }
    for (const Shape& other : others) {
      INFO(other.str());
      const Output y = f.values<TestType>(other), two = f.s.constant(Tensor::scalar(TestType(2)));
      // tanh(x * y + y) - 2, and with all that is not x first: neg(y) * 2 - x.
      f.check_same(f.fused({x, y, two}, {"Mul", "AddV2", "Tanh", "Sub"}, {0, 1, 3, 1, 4, -1, 5, 2}),
                   f.s.op("Sub", {f.s.op("Tanh", {f.s.op("AddV2", {f.s.op("Mul", {x, y}), y})}), two}));
      f.check_same(f.fused({y, two, x}, {"Neg", "Mul", "Sub"}, {0, -1, 3, 1, 4, 2}),
                   f.s.op("Sub", {f.s.op("Mul", {f.s.op("Neg", {y}), two}), x}));
    }
  }
}

TEST_CASE("vectors of any length are repeated beside blocks of two threads, and beside what is read otherwise") {
  ElementwiseFixture f;
  for (const int64_t n : {1, 3, 16, 96, 127, 128, 300, 511, 513, 700, 1030, 3000}) {
    INFO(n);
    const int64_t rows = 60'000 / n + 1;
    const Output x = f.values<float>({rows, 2, n}), shift = f.values<float>({n}),
                 factor = f.s.op("Cos", {f.values<float>({n})}), part = f.values<float>({2, n}),
                 column = f.values<float>({rows, 1, 1});
    const Output normed = f.s.op("AddV2", {f.s.op("Mul", {f.s.op("Sub", {x, shift}), factor}), shift});
    f.check_same(f.fused({x, shift, factor}, {"Sub", "Mul", "AddV2", "Square"}, {0, 1, 3, 2, 4, 1, 5, -1}),
                 f.s.op("Square", {normed}));
    f.check_same(f.fused({shift, factor, x}, {"Mul", "Sub"}, {0, 1, 2, 3}),
                 f.s.op("Sub", {x, f.s.op("Mul", {shift, factor})}));
    f.check_same(f.fused({x, shift, part}, {"Sub", "Mul"}, {0, 1, 3, 2}),
                 f.s.op("Mul", {f.s.op("Sub", {x, shift}), part}));
    f.check_same(f.fused({x, shift, column}, {"Sub", "Mul"}, {0, 1, 3, 2}),
                 f.s.op("Mul", {f.s.op("Sub", {x, shift}), column}));
  }
}

TEST_CASE("every fusable op has a loop and gives what its own kernel does") {
  ElementwiseFixture f;
  const Output x = f.values<float>({300}), y = f.s.op("Abs", {f.values<float>({300})});
  for (const std::string_view name : fusable_ops()) {
    INFO(name);
    const std::string op(name);
    const bool unary = f.graph.ops().find(op)->inputs().size() == 1;
    const Output alone = f.s.op(op, unary ? std::vector{x} : std::vector{x, y});
    f.check_same(f.fused({x, y}, {op, "Square"}, {0, unary ? -1 : 1, 2, -1}), f.s.op("Square", {alone}));
  }
}

TEST_CASE("rows and columns are read beside one another") {
  ElementwiseFixture f;
  const Output x = f.values<float>({4, 5, 300}), row = f.values<float>({300}), column = f.values<float>({4, 5, 1}),
               part = f.values<float>({5, 300}), other = f.values<float>({5, 1});
  // (column * other - row) * part + column * x: two columns meet before anything else.
  f.check_same(
      f.fused({x, row, column, part, other}, {"Mul", "Sub", "Mul", "Mul", "AddV2"}, {2, 4, 5, 1, 6, 3, 2, 0, 7, 8}),
      f.s.op("AddV2", {f.s.op("Mul", {f.s.op("Sub", {f.s.op("Mul", {column, other}), row}), part}),
                       f.s.op("Mul", {column, x})}));
}

TEST_CASE("a sum of several tensors adds them in their order, and takes no other shape") {
  ElementwiseFixture f;
  const Output x = f.values<float>({3, 200}), y = f.s.op("Exp", {x}), z = f.s.op("Square", {x});
  f.check_same(f.fused({x, y, z}, {"AddN", "AddN", "Neg"}, {0, 1, 3, 2, 4, -1}),
               f.s.op("Neg", {f.s.op("AddN", {x, y, z})}));
  const auto refused = f.evaluator.run({f.fused({x, f.values<float>({200})}, {"AddN", "Neg"}, {0, 1, 2, -1})});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message == "in AddN: shapes [3,200] and [200] differ");
}

TEST_CASE("many functions reuse their blocks") {
  ElementwiseFixture f;
  const Output x = f.values<float>({100, 100});
  Strings ops;
  Numbers operands;
  std::vector<Output> made = {x};
  for (int64_t i = 0; i < 60; ++i) {  // each reads the one before it and one long before
    ops.push_back(i % 2 ? "Sub" : "Maximum");
    operands.insert(operands.end(), {i, i / 2});
    made.push_back(f.s.op(ops.back(), {made[static_cast<size_t>(i)], made[static_cast<size_t>(i / 2)]}));
  }
  f.check_same(f.fused({x}, ops, operands), made.back());
}

TEMPLATE_TEST_CASE("rows are reduced and spread in the order of their own kernels", "", float, double) {
  ElementwiseFixture f;
  const Output last = f.s.constant(Tensor::of<int32_t>({-1}));
  for (const Shape& shape : {Shape{3, 5}, Shape{1}, Shape{700}, Shape{2, 3, 64}, Shape{1, 9000}, Shape{4, 1},
                             Shape{0, 7}, Shape{7, 0}, Shape{40, 130}}) {
    INFO(shape.str());
    Shape column = shape;
    column.set(shape.rank() - 1, 1);
    const Output x = f.values<TestType>(shape), gamma = f.values<TestType>({shape.dim(-1)}),
                 shift = f.values<TestType>(column), two = f.s.constant(Tensor::scalar(TestType(2)));
    for (const std::string op : {"Sum", "Mean", "Max", "Min"}) {
      INFO(op);
      const auto reduced = [&](Output v) { return f.s.op(op, {v, last}, {{"keep_dims", true}}); };
      // x - reduced(x * gamma) * shift * 2, then gamma * that.
      const Output by_rows = f.s.op("Mul", {f.s.op("Mul", {reduced(f.s.op("Mul", {x, gamma})), shift}), two});
      f.check_same(f.fused({x, gamma, shift, two}, {"Mul", op, "Mul", "Mul", "Sub", "Mul"},
                           {0, 1, 4, -1, 5, 2, 6, 3, 0, 7, 1, 8}),
                   f.s.op("Mul", {gamma, f.s.op("Sub", {x, by_rows})}));
      // The column first, its own reduction, and a row repeated.
      const Output wide = f.s.op("BroadcastTo", {f.s.op("AddV2", {reduced(shift), reduced(x)}),
                                                 f.s.constant(Tensor::of<int64_t>(shape.dims()))});
      f.check_same(f.fused({shift, x}, {op, op, "AddV2", "BroadcastTo", "AddN"}, {0, -1, 1, -1, 2, 3, 4, 1, 5, 1}),
                   f.s.op("AddN", {wide, x}));
    }
  }
}

TEST_CASE("shapes that do not fit are named with their function, and bad programs are refused") {
  ElementwiseFixture f;
  const auto fault = [&](std::vector<Output> args, Strings ops, Numbers operands) {
    auto r = f.evaluator.run({f.fused(std::move(args), std::move(ops), std::move(operands))});
    REQUIRE_FALSE(r.ok());
    return r.error().message;
  };
  const auto hidden = [&](Shape shape) {  // from inference
    return f.s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape()}});
  };
  const Output a = hidden({2}), b = hidden({3});
  const auto feed = [](Shape s) { return *Tensor::zeros(DType::kFloat32, s); };
  auto r = f.evaluator.run({f.fused({a, b}, {"Neg", "AddV2"}, {0, -1, 2, 1})}, {{a, feed({2})}, {b, feed({3})}});
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().message.find("in AddV2: ") == 0);
  r = f.evaluator.run({f.fused({a, b}, {"Neg", "ReluGrad"}, {0, -1, 2, 1})}, {{a, feed({2, 1})}, {b, feed({2})}});
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().message == "in ReluGrad: shapes [2,1] and [2] differ");

  r = f.evaluator.run({f.fused({a, b}, {"Sum", "AddV2"}, {0, -1, 2, 1})}, {{a, feed({})}, {b, feed({3})}});
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().message == "in Sum: a scalar has no last dimension");
  r = f.evaluator.run({f.fused({a, b}, {"BroadcastTo", "Neg"}, {0, 1, 2, -1})}, {{a, feed({2, 3})}, {b, feed({3})}});
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().message == "in BroadcastTo: [2,3] does not broadcast to [3]");
  r = f.evaluator.run({f.fused({a, b}, {"Mul", "Sum"}, {0, 1, 2, -1})}, {{a, feed({2, 3})}, {b, feed({3})}});
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().message.find("a value [2,3] is larger than the result [2,1]") == 0);

  const Output x = f.values<float>({2});
  CHECK(fault({x}, {"MatMul"}, {0, 0}).find("'MatMul' of float32 cannot be fused") == 0);
  CHECK(fault({x}, {"Neg"}, {0}).find("1 operands for 1 functions") == 0);
  CHECK(fault({x}, {}, {}).find("0 operands for 0 functions") == 0);
  CHECK(fault({x}, {"Neg"}, {1, -1}).find("function 0 has the operands 1 and 1, but 1 values before it") == 0);
  CHECK(fault({x}, {"Sub"}, {0, -1}).find("function 0 has the operands 0 and -1") == 0);
}
