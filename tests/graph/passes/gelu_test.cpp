// SPDX-License-Identifier: Apache-2.0
// Recognising GELU as frameworks write it, its fusing with the product and the bias before it, and what is not one.
#include "graph/passes/gelu.h"

#include <cmath>

#include "tests/graph/passes/pass_fixture.h"
#include "troupe/gradients.h"

using namespace troupe;

namespace {

struct GeluFixture : test::PassFixture {
  double factor = std::sqrt(2 / M_PI);  // as it is written

  Output number(double v, const Output& like) {
    if (like.dtype() == DType::kFloat64) return s.constant(Tensor::scalar(v));
    if (like.dtype() == DType::kBFloat16) return s.constant(Tensor::scalar(bfloat16(static_cast<float>(v))));
    return s.constant(Tensor::scalar(static_cast<float>(v)));
  }
  Output op(const char* name, const Output& a, const Output& b) { return s.op(name, {a, b}); }
  Output op(const char* name, double a, const Output& b) { return s.op(name, {number(a, b), b}); }
  Output op(const char* name, const Output& a, double b) { return s.op(name, {a, number(b, a)}); }

  Output argument_by_power(const Output& x) {
    return op("Mul", factor, op("AddV2", x, op("Mul", 0.044715, op("Pow", x, 3))));
  }
  Output argument_by_products(const Output& x) {
    const Output cube = op("Mul", x, op("Mul", x, x));
    return op("Mul", op("Add", op("Mul", cube, 0.044715), x), factor);
  }
  /// sqrt(2 / pi) x (1 + 0.044715 x x)
  Output argument_in_factors(const Output& x) {
    return op("Mul", op("Mul", factor, x), op("AddV2", 1, op("Mul", op("Mul", 0.044715, x), x)));
  }
  Output argument_of_square(const Output& x) {
    return op("Mul", op("AddV2", x, op("Mul", op("Mul", s.op("Square", {x}), x), 0.044715)), factor);
  }
  std::vector<Output> arguments(const Output& x) {
    return {argument_by_power(x), argument_by_products(x), argument_in_factors(x), argument_of_square(x)};
  }
  Output plus_one(const Output& curve, bool last) { return last ? op("AddV2", curve, 1) : op("Add", 1, curve); }
  /// x / 2 * sum in the orders in which it is written.
  std::vector<Output> products(const Output& x, const Output& sum) {
    return {
        op("Mul", op("Mul", 0.5, x), sum), op("Mul", op("Mul", x, sum), 0.5), op("Mul", x, op("Mul", 0.5, sum)),
        op("Mul", 0.5, op("Mul", x, sum)), op("Mul", op("Mul", sum, 0.5), x), op("Mul", op("RealDiv", x, 2), sum),
        op("Div", op("Mul", x, sum), 2),   op("Mul", sum, op("Mul", x, 0.5)), op("RealDiv", op("Mul", sum, x), 2.0)};
  }

  /// What is fused where `last` is fetched, and the ops of it.
  std::string fused(Output last) {
    INFO((s.ok() ? "" : s.status().error().str()));
    REQUIRE(s.ok());
    StepGraph step(graph, {}, {&last, 1}, {});
    run_passes(step, only(&GraphPasses::fuse_epilogues), {});
    const Node& node = *step.now(last).node;
    std::string out = text(step, last);
    if (const auto ops = node.attrs().get<std::vector<std::string>>("fused_ops"); ops)
      for (const std::string& name : *ops) out += " " + name;
    return out;
  }
  std::optional<Gelu> found(Output last) {
    REQUIRE(s.ok());
    const StepGraph step(graph, {}, {&last, 1}, {});
    return find_gelu(step, *last.node);
  }
  /// By the passes that run before, if `simplified`.
  std::optional<GeluGradient> gradient(Output last, bool simplified = false) {
    INFO((s.ok() ? "" : s.status().error().str()));
    REQUIRE(s.ok());
    StepGraph step(graph, {}, {&last, 1}, {});
    if (simplified)
      run_general_passes(step, GraphPasses::all(),
                         [this](const Node& n, std::span<const Tensor> in) { return compute(n, in); });
    return find_gelu_gradient(step, *step.now(last).node);
  }
  Output gradient_of(const Output& y, const Output& x, const Output& dy) {
    const auto by = gradients(s, {y}, {x}, {dy});
    INFO((by.ok() ? "" : by.error().str()));
    REQUIRE(by.ok());
    return (*by)[0];
  }
};

}  // namespace

TEST_CASE("GELU by tanh and by erf is known in all orders of its factors") {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    GeluFixture f;
    if (dtype == DType::kFloat32) f.factor = 0.79788456;
    const Output x = f.placeholder("x", {4, 3}, dtype);
    const double root = std::sqrt(2.0);
    for (const bool by_erf : {false, true})
      for (const Output& argument : by_erf ? std::vector<Output>{f.op("RealDiv", x, root), f.op("Div", x, root),
                                                                 f.op("Mul", x, 1 / root), f.op("Mul", 1 / root, x)}
                                           : f.arguments(x))
        for (const bool last : {false, true}) {
          const Output sum = f.plus_one(f.s.op(by_erf ? "Erf" : "Tanh", {argument}), last);
          for (const Output& result : f.products(x, sum)) {
            const auto gelu = f.found(result);
            REQUIRE(gelu);
            CHECK(gelu->exact == by_erf);
            CHECK(gelu->x == x);
            CHECK(gelu->parts.back() == result.node);
          }
        }
  }
}

TEST_CASE("GELU by erfc, as TensorFlow writes it, is known") {
  GeluFixture f;
  const Output x = f.placeholder("x", {4, 3});
  const auto by = [&](double root, double half) {
    const Output curve = f.s.op("Erfc", {f.op("Mul", f.s.op("Neg", {x}), root)});
    return f.found(f.op("Mul", f.op("Mul", half, x), curve));
  };
  const auto gelu = by(std::sqrt(0.5), 0.5);
  REQUIRE(gelu);
  CHECK(gelu->exact);
  CHECK(gelu->x == x);
  CHECK_FALSE(by(-std::sqrt(0.5), 0.5));
  CHECK_FALSE(by(std::sqrt(0.5), -0.5));
  CHECK_FALSE(by(0.5, 0.5));
  const Output minus = f.s.op("Erf", {f.op("Mul", x, -std::sqrt(0.5))});
  CHECK(f.found(f.op("Mul", f.op("Mul", 0.5, x), f.op("Sub", 1, minus))));
  CHECK_FALSE(f.found(f.op("Mul", f.op("Mul", 0.5, x), f.op("AddV2", 1, minus))));
}

TEST_CASE("what is almost GELU is not one") {
  GeluFixture f;
  const Output x = f.placeholder("x", {4, 3}), other = f.placeholder("other", {4, 3});
  const auto of_curve = [&](const char* curve, const Output& argument, double one = 1, double half = 0.5) {
    return f.found(f.op("Mul", f.op("Mul", half, x), f.op("AddV2", one, f.s.op(curve, {argument})))).has_value();
  };
  const Output argument = f.argument_by_power(x), root = f.op("Mul", x, std::sqrt(0.5));
  REQUIRE(of_curve("Tanh", argument));
  REQUIRE(of_curve("Erf", root));
  CHECK_FALSE(of_curve("Tanh", argument, 1.01));
  CHECK_FALSE(of_curve("Tanh", argument, 1, 0.51));
  CHECK_FALSE(of_curve("Erf", argument));
  CHECK_FALSE(of_curve("Tanh", root));
  CHECK_FALSE(of_curve("Sigmoid", argument));
  CHECK_FALSE(of_curve("Erf", x));
  CHECK_FALSE(of_curve("Tanh", f.argument_by_power(other)));
  CHECK_FALSE(of_curve("Erf", f.op("Mul", other, std::sqrt(0.5))));
  CHECK_FALSE(of_curve("Erf", f.op("RealDiv", std::sqrt(0.5), x)));
  f.factor = 0.79;
  CHECK_FALSE(of_curve("Tanh", f.argument_by_power(x)));
  // A constant that is fed, one of several elements, and one that adds a dimension.
  const Output sum = f.op("AddV2", 1, f.s.op("Erf", {root}));
  const Output two = f.s.constant(Tensor::of<float>({0.5f, 0.5f, 0.5f})),
               deep = f.s.constant(Tensor::of<float>({0.5f}, {1, 1, 1})),
               flat = f.s.constant(Tensor::of<float>({0.5f}, {1, 1})), half = f.number(0.5, x);
  CHECK_FALSE(f.found(f.op("Mul", f.op("Mul", two, x), sum)));
  CHECK_FALSE(f.found(f.op("Mul", f.op("Mul", deep, x), sum)));
  CHECK(f.found(f.op("Mul", f.op("Mul", flat, x), sum)));
  const Output result = f.op("Mul", f.op("Mul", half, x), sum);
  const StepGraph step(f.graph, {&half, 1}, {&result, 1}, {});
  CHECK_FALSE(find_gelu(step, *result.node));
  // Endless in both directions: products of products, and a long sum.
  Output deeper = x;
  for (int i = 0; i < 100; ++i) deeper = f.op("Mul", deeper, deeper);
  CHECK_FALSE(f.found(deeper));
  Output longer = f.s.op("Tanh", {x});
  for (int i = 0; i < 1000; ++i) longer = f.op("AddV2", longer, 1);
  CHECK_FALSE(f.found(f.op("Mul", x, longer)));
}

TEST_CASE("the gradient of GELU is known in all orders of its factors") {
  for (const bool sized : {true, false})
    for (const bool simplified : {false, true})
      for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
        if (dtype == DType::kBFloat16 && !sized) continue;
        GeluFixture f;
        if (dtype != DType::kFloat64) f.factor = 0.79788456;
        const PartialShape shape{sized ? 4 : -1, 3};
        const Output x = f.placeholder("x", shape, dtype), dy = f.placeholder("dy", shape, dtype);
        const double root = std::sqrt(2.0);
        for (const bool by_erf : {false, true})
          for (const Output& argument :
               by_erf ? std::vector<Output>{f.op("RealDiv", x, root), f.op("Mul", x, 1 / root)} : f.arguments(x)) {
            const Output sum = f.plus_one(f.s.op(by_erf ? "Erf" : "Tanh", {argument}), simplified);
            for (const Output& y : f.products(x, sum)) {
              // Powers as they are written are left to the passes before, which make products of them.
              const Output last = f.gradient_of(y, x, dy);
              const auto found = f.gradient(last, simplified);
              if (!simplified && f.after(GraphPasses::none(), last).find("Pow") != std::string::npos) continue;
              INFO(f.after(GraphPasses::none(), last));
              REQUIRE(found);
              CHECK(found->exact == by_erf);
              CHECK(found->x == x);
              CHECK(found->dy == dy);
              CHECK(std::ranges::find(found->kept, sum.node) != found->kept.end());
              CHECK(std::ranges::find(found->parts, y.node) == found->parts.end());
            }
          }
      }
}

TEST_CASE("the gradient of GELU by erfc, and one written by hand, are known") {
  GeluFixture f;
  const Output x = f.placeholder("x", {4, 3}), dy = f.placeholder("dy", {4, 3});
  const Output curve = f.s.op("Erfc", {f.op("Mul", f.s.op("Neg", {x}), std::sqrt(0.5))});
  const auto erfc = f.gradient(f.gradient_of(f.op("Mul", f.op("Mul", 0.5, x), curve), x, dy));
  REQUIRE(erfc);
  CHECK(erfc->exact);
  CHECK(erfc->dy == dy);
  const auto by_hand = [&](double half, double root, double bell, const Output& dy) {
    const Output phi = f.op("Mul", half, f.op("AddV2", f.s.op("Erf", {f.op("Mul", x, root)}), 1));
    const Output density = f.op("Mul", bell, f.s.op("Exp", {f.op("Mul", -0.5, f.s.op("Square", {x}))}));
    return f.gradient(f.op("AddV2", f.op("Mul", dy, phi), f.op("Mul", f.op("Mul", density, dy), x)));
  };
  CHECK(by_hand(0.5, std::sqrt(0.5), 1 / std::sqrt(2 * M_PI), dy));
  CHECK_FALSE(by_hand(0.51, std::sqrt(0.5), 1 / std::sqrt(2 * M_PI), dy));
  CHECK_FALSE(by_hand(0.5, 0.5, 1 / std::sqrt(2 * M_PI), dy));
  CHECK_FALSE(by_hand(0.5, std::sqrt(0.5), 0.5, dy));
  CHECK_FALSE(by_hand(0.5, std::sqrt(0.5), 1 / std::sqrt(2 * M_PI), f.placeholder("row", {1, 3})));
  CHECK_FALSE(by_hand(-0.5, -std::sqrt(0.5), 1 / std::sqrt(2 * M_PI), dy));
}

TEST_CASE("what is almost the gradient of GELU is not one") {
  GeluFixture f;
  const Output x = f.placeholder("x", {4, 3}), dy = f.placeholder("dy", {4, 3}), other = f.placeholder("other", {4, 3});
  const auto by_tanh = [&](const Output& argument, double half = 0.5, double one = 1) {
    return f.op("Mul", f.op("Mul", half, x), f.op("AddV2", one, f.s.op("Tanh", {argument})));
  };
  const auto known = [&](const Output& last) { return f.gradient(last).has_value(); };
  const Output y = by_tanh(f.argument_by_products(x)), dx = f.gradient_of(y, x, dy);
  REQUIRE(known(dx));
  CHECK_FALSE(known(f.gradient_of(by_tanh(f.argument_by_products(x), 0.51), x, dy)));
  CHECK_FALSE(known(f.gradient_of(by_tanh(f.argument_by_products(x), 0.5, 1.01), x, dy)));
  CHECK_FALSE(known(f.gradient_of(by_tanh(f.op("Mul", x, std::sqrt(0.5))), x, dy)));
  CHECK_FALSE(known(f.gradient_of(by_tanh(f.argument_by_products(other)), x, dy)));
  CHECK_FALSE(known(f.s.op("AddN", {dx, other})));
  CHECK_FALSE(known(f.s.op("AddN", {dx, dx})));
  CHECK_FALSE(known(f.s.op("AddN", {dx, y})));
  f.factor = 0.79;
  CHECK_FALSE(known(f.gradient_of(by_tanh(f.argument_by_products(x)), x, dy)));
  // dy may be a product itself.
  f.factor = std::sqrt(2 / M_PI);
  const Output scaled = f.op("Mul", f.op("Mul", dy, other), 3);
  const auto of_scaled = f.gradient(f.gradient_of(y, x, scaled));
  REQUIRE(of_scaled);
  CHECK(of_scaled->dy == scaled);
}

TEST_CASE("a product takes the bias and the GELU after it") {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    GeluFixture f;
    const Output x = f.placeholder("x", {-1, 3}, dtype), w = f.placeholder("w", {3, 2}, dtype),
                 b = f.placeholder("b", {2}, dtype);
    const auto tanh_of = [&](const Output& y) {
      return f.op("Mul", f.op("Mul", 0.5, y), f.op("AddV2", 1, f.s.op("Tanh", {f.argument_by_power(y)})));
    };
    const auto erf_of = [&](const Output& y) {
      return f.op("Mul", f.op("Mul", y, f.op("AddV2", f.s.op("Erf", {f.op("Div", y, std::sqrt(2.0))}), 1)), 0.5);
    };
    const auto product = [&] { return f.s.op("MatMul", {x, w}); };
    CHECK(f.fused(tanh_of(f.s.op("BiasAdd", {product(), b}))) == "_FusedMatMul(x, w, b) BiasAdd GeluApproximate");
    CHECK(f.fused(erf_of(f.s.op("BiasAdd", {product(), b}))) == "_FusedMatMul(x, w, b) BiasAdd GeluExact");
    CHECK(f.fused(tanh_of(f.s.op("AddV2", {product(), b}))) == "_FusedMatMul(x, w, b) BiasAdd GeluApproximate");
    CHECK(f.fused(erf_of(f.s.op("Add", {b, product()}))) == "_FusedMatMul(x, w, b) BiasAdd GeluExact");
    CHECK(f.fused(erf_of(product())) == "_FusedMatMul(x, w) GeluExact");
    CHECK(f.fused(f.s.op("Relu", {f.s.op("AddV2", {product(), b})})) == "_FusedMatMul(x, w, b) BiasAdd Relu");
    CHECK(f.fused(f.s.op("Add", {b, product()})) == "_FusedMatMul(x, w, b) BiasAdd");
    CHECK(f.fused(f.s.op("Exp", {erf_of(product())})) == "Exp(_FusedMatMul(x, w))");
  }
}

TEST_CASE("a sum that is not along the last axis is not a bias") {
  GeluFixture f;
  const Output x = f.placeholder("x", {2, 3}), w = f.placeholder("w", {3, 2}), one = f.placeholder("one", {1}),
               rows = f.placeholder("rows", {2, 1}), wide = f.placeholder("wide", {3, -1}), b = f.placeholder("b", {2}),
               narrow = f.placeholder("narrow", {3, 1});
  const auto sum = [&](const Output& filter, const Output& bias) {
    return f.fused(f.s.op("AddV2", {f.s.op("MatMul", {x, filter}), bias}));
  };
  CHECK(sum(w, b) == "_FusedMatMul(x, w, b) BiasAdd");
  CHECK(sum(w, one) == "AddV2(MatMul(x, w), one)");
  CHECK(sum(w, rows) == "AddV2(MatMul(x, w), rows)");
  CHECK(sum(wide, b) == "AddV2(MatMul(x, wide), b)");
  CHECK(sum(narrow, b) == "AddV2(MatMul(x, narrow), b)");
}

TEST_CASE("a GELU of which a gradient or a fetch reads what is inside stays") {
  GeluFixture f;
  const Output x = f.placeholder("x", {2, 3}), w = f.placeholder("w", {3, 2}), b = f.placeholder("b", {2});
  const Output y = f.s.op("BiasAdd", {f.s.op("MatMul", {x, w}), b});
  const Output root = f.op("Mul", y, std::sqrt(0.5)), curve = f.s.op("Erf", {root}), sum = f.op("AddV2", curve, 1);
  const Output gelu = f.op("Mul", f.op("Mul", 0.5, y), sum);
  CHECK(f.fused(gelu) == "_FusedMatMul(x, w, b) BiasAdd GeluExact");
  for (const Output& inside : {root, curve, sum, y}) {
    const Output both = f.s.op("AddN", {gelu, inside});
    CHECK(f.fused(both).find("Erf") != std::string::npos);
    StepGraph step(f.graph, {&inside, 1}, {&gelu, 1}, {});
    run_passes(step, GeluFixture::only(&GraphPasses::fuse_epilogues), {});
    CHECK(step.now(gelu) == gelu);
  }
  const Output late = f.s.after({x}).op("Erf", {root});
  CHECK(f.fused(f.op("Mul", f.op("Mul", 0.5, y), f.op("AddV2", late, 1))).find("Erf") != std::string::npos);
}

TEST_CASE("after the general passes, which make products of powers, it is known too") {
  GeluFixture f;
  const Output x = f.placeholder("x", {2, 3}), w = f.placeholder("w", {3, 2});
  const Output y = f.s.op("MatMul", {x, w}), root = f.s.op("Sqrt", {f.number(2, x)});
  const Output by_tanh = f.op("Mul", f.op("Mul", 0.5, y), f.op("AddV2", 1, f.s.op("Tanh", {f.argument_by_power(y)})));
  const Output by_erf = f.op("Mul", y, f.op("Mul", 0.5, f.op("AddV2", 1, f.s.op("Erf", {f.op("RealDiv", y, root)}))));
  CHECK(f.after(GraphPasses::all(), by_tanh) == "_FusedMatMul(x, w)");
  CHECK(f.after(GraphPasses::all(), by_erf) == "_FusedMatMul(x, w)");
}
