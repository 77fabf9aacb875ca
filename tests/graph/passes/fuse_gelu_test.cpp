// SPDX-License-Identifier: Apache-2.0
// GELU and its gradient as one node each on GPUs: what is rewritten, and what is not.
#include "graph/passes/fuse_gelu.h"

#include <cmath>

#include "tests/graph/passes/pass_fixture.h"
#include "troupe/gradients.h"

using namespace troupe;

namespace {

/// y = gelu(x w + b), and the gradients of it.
struct GeluFusionFixture : test::PassFixture {
  Output h, w = placeholder("w", {3, 2}), b = placeholder("b", {2}), g, x, curve, y, dx;

  explicit GeluFusionFixture(bool exact, int64_t rows = 4) {
    h = placeholder("h", {rows, 3});
    g = placeholder("g", {rows, 2});
    x = s.op("BiasAdd", {s.op("MatMul", {h, w}), b});
    curve = curve_of(s, exact);
    y = s.op("Mul", {s.op("Mul", {x, number(0.5)}), s.op("AddV2", {curve, number(1)})});
    dx = gradient_of(y);
  }
  Output number(double v) { return s.constant(Tensor::scalar(static_cast<float>(v))); }
  Output curve_of(const Scope& in, bool exact) {
    if (exact) return in.op("Erf", {s.op("Mul", {x, number(std::sqrt(0.5))})});
    const Output cube = s.op("Mul", {s.op("Mul", {x, x}), x});
    return in.op(
        "Tanh",
        {s.op("Mul", {s.op("AddV2", {x, s.op("Mul", {cube, number(0.044715)})}), number(std::sqrt(2 / M_PI))})});
  }
  Output gradient_of(const Output& of) {
    const auto by = gradients(s, {of}, {x}, {g});
    INFO((by.ok() ? "" : by.error().str()));
    REQUIRE(by.ok());
    return (*by)[0];
  }

  /// What stands for the fetches, where all nodes run on a GPU or on none.
  std::vector<std::string> fused(const Outputs& fetches, const Outputs& fed = {}, bool on_gpu = true) {
    INFO((s.ok() ? "" : s.status().error().str()));
    REQUIRE(s.ok());
    StepGraph step(graph, fed, fetches, {});
    run_general_passes(step, GraphPasses::all(),
                       [this](const Node& n, std::span<const Tensor> in) { return compute(n, in); });
    return with_epilogues(step, fetches, on_gpu);
  }
};

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("of a GELU in training x alone is kept, and it and its gradient are one node each") {
  for (const int64_t rows : {4, -1})
    for (const bool exact : {false, true}) {
      GeluFusionFixture f(exact, rows);
      const std::string name = exact ? "_GeluExact" : "_GeluApproximate";
      CHECK(f.fused({f.y, f.dx}) == Texts{name + "(_FusedMatMul(h, w, b))", name + "Grad(g, _FusedMatMul(h, w, b))"});
      CHECK(f.fused({f.y}) == Texts{"_FusedMatMul(h, w, b)"});
      CHECK(f.fused({f.s.op("Exp", {f.y}), f.x})[0] == "Exp(" + name + "(_FusedMatMul(h, w, b)))");
      for (const std::string& text : f.fused({f.y, f.dx}, {}, false)) CHECK(text.find("_Gelu") == std::string::npos);
    }
}

TEST_CASE("a GELU and a gradient that others read, that are fed or that wait stay") {
  for (const bool exact : {false, true}) {
    GeluFusionFixture f(exact);
    const auto has_gelu = [&](const Outputs& fetches, const Outputs& fed = {}) {
      for (const std::string& text : f.fused(fetches, fed))
        if (text.find("_Gelu") != std::string::npos) return true;
      return false;
    };
    REQUIRE(has_gelu({f.dx}));
    CHECK_FALSE(has_gelu({f.dx}, {f.curve}));
    CHECK_FALSE(has_gelu({f.y}, {f.curve}));
    CHECK_FALSE(has_gelu({f.y, f.curve, f.x}));
    // The forward pass's nodes may have other readers; what is computed of dy may not.
    CHECK(has_gelu({f.dx, f.curve}));
    CHECK_FALSE(has_gelu({f.dx, f.dx.node->inputs()[0]}));
    const Output late = f.curve_of(f.s.after({f.g}), exact);
    const Output y = f.s.op("Mul", {f.s.op("Mul", {f.x, f.number(0.5)}), f.s.op("AddV2", {late, f.number(1)})});
    CHECK_FALSE(has_gelu({y, f.gradient_of(y)}));
    const Output there = f.curve_of(f.s.device("/gpu:1"), exact);
    const Output z = f.s.op("Mul", {f.s.op("Mul", {f.x, f.number(0.5)}), f.s.op("AddV2", {there, f.number(1)})});
    CHECK_FALSE(has_gelu({z, f.gradient_of(z)}));
  }
}
