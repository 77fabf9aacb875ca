// SPDX-License-Identifier: Apache-2.0
// How often nodes run in a step: in loops by their bounds, by what was measured, or by the default.
#include <catch2/catch.hpp>

#include "plan/firing_counts.h"
#include "tests/graph/passes/pass_fixture.h"
#include "troupe/control_flow.h"
#include "troupe/gradients.h"
#include "troupe/placement.h"

using namespace troupe;

namespace {

struct Counted : test::PassFixture {
  std::vector<double> count(std::vector<Output> fetches, const CostModel* costs = nullptr,
                            GraphPasses passes = GraphPasses::none()) {
    INFO((s.ok() ? "" : s.status().error().str()));
    REQUIRE(s.ok());
    StepGraph step(graph, {}, fetches, {});
    run_passes(step, passes, [this](const Node& n, std::span<const Tensor> in) { return compute(n, in); });
    auto frames = find_frames(step);
    REQUIRE(frames.ok());
    return firings_of(step, *frames, costs);
  }
  /// How often the nodes of an op in a scope run, which must agree.
  double of(const std::vector<double>& firings, const std::string& op, const std::string& in = "") const {
    double found = -1;
    for (int id = 0; id < graph.size(); ++id)
      if (graph.node(id).op().name() == op && graph.node(id).name().starts_with(in.empty() ? in : in + "/")) {
        if (found >= 0) CHECK(firings[static_cast<size_t>(id)] == found);
        found = firings[static_cast<size_t>(id)];
      }
    REQUIRE(found >= 0);
    return found;
  }

  /// A loop that squares x as long as `proceed(counter)`; the counter goes from `from` by `by`.
  template <class T, class P> Output loop(Output x, T from, T by, P proceed, const std::string& name = "loop") {
    return while_loop(
        s, {s.constant(from), x}, [&](const Scope& in, const Outputs& v) { return proceed(in, v[0]); },
        [&](const Scope& in, const Outputs& v) {
          return Outputs{in.op("AddV2", {v[0], in.constant(by)}), in.op("Square", {v[1]})};
        },
        {.name = name})[1];
  }
  /// The same by a comparison with a constant.
  template <class T> double iterations(const char* op, T from, T by, T bound) {
    const std::string name = fmt::format("loop_{}", ++loops);
    const Output out = loop(
        s.constant(1.f), from, by,
        [&](const Scope& in, Output i) {
          return in.op(op, {i, s.constant(bound)});
        },
        name);
    const double squares = of(count({out}), "Square", name);
    if (squares != kUnknownIterations) CHECK(of(count({out}), op, name) == squares + 1);
    CHECK(of(count({out}, nullptr, GraphPasses{}), "Square", name) == squares);
    return squares;
  }
  int loops = 0;
};

}  // namespace

TEST_CASE("a loop runs as often as constants bound it") {
  Counted c;
  CHECK(c.iterations("Less", 0, 1, 50) == 50);
  CHECK(c.iterations("Less", 0, 3, 50) == 17);
  CHECK(c.iterations("Less", int64_t{7}, int64_t{1}, int64_t{7}) == 0);
  CHECK(c.iterations("LessEqual", 0, 1, 50) == 51);
  CHECK(c.iterations("LessEqual", 0, 3, 50) == 17);
  CHECK(c.iterations("Greater", 9, -2, 0) == 5);
  CHECK(c.iterations("GreaterEqual", 9, -3, 0) == 4);
  CHECK(c.iterations("GreaterEqual", -1, 1, 0) == 0);
  CHECK(c.iterations("NotEqual", 0, 2, 6) == 3);
  CHECK(c.iterations("Less", 0.f, 0.5f, 2.2f) == 5);
  // For ever, as far as can be told.
  CHECK(c.iterations("Less", 0, -1, 50) == kUnknownIterations);
  CHECK(c.iterations("NotEqual", 0, 2, 5) == kUnknownIterations);
  CHECK(c.iterations("NotEqual", 0, 0, 5) == kUnknownIterations);
}

TEST_CASE("conditions of several parts, and what cannot be known before") {
  Counted c;
  const Output fed = c.placeholder("fed", PartialShape::scalar(), DType::kInt32);
  const Output x = c.s.constant(1.f);
  const auto squares = [&](const std::string& name, auto proceed) {
    return c.of(c.count({c.loop(x, 0, 1, proceed, name)}), "Square", name);
  };
  CHECK(squares("a", [&](const Scope& in, Output i) { return in.op("Greater", {in.constant(4), i}); }) == 4);
  CHECK(squares("b", [&](const Scope& in, Output i) { return in.op("Less", {i, fed}); }) == kUnknownIterations);
  const auto both = [&](const Scope& in, Output i, Output bound, int32_t most) {
    return in.op("LogicalAnd", {in.op("Less", {i, bound}), in.op("Less", {i, in.constant(most)})});
  };
  CHECK(squares("c", [&](const Scope& in, Output i) { return both(in, i, c.s.constant(30), 20); }) == 20);
  // One part that is not known: no more than the other allows.
  CHECK(squares("d", [&](const Scope& in, Output i) { return both(in, i, fed, INT32_MAX); }) == kUnknownIterations);
  CHECK(squares("e", [&](const Scope& in, Output i) { return both(in, i, fed, 3); }) == 3);
}

TEST_CASE("a loop within a loop, a branch in one, and the loop of a gradient") {
  Counted c;
  const Output x = c.s.constant(1.f), p = c.placeholder("p", PartialShape::scalar(), DType::kBool);
  const auto below = [&](int32_t n) {
    return [n](const Scope& in, const Outputs& v) { return in.op("Less", {v[0], in.constant(n)}); };
  };
  const Outputs out = while_loop(c.s, {c.s.constant(0), x}, below(5), [&](const Scope& outer, const Outputs& v) {
    const Outputs inner = while_loop(outer, {outer.constant(0), v[1]}, below(7),
                                     [](const Scope& in, const Outputs& w) {
                                       return Outputs{in.op("AddV2", {w[0], in.constant(1)}), in.op("Sin", {w[1]})};
                                     },
                                     {.name = "inner"});
    const Output branch = cond(
        outer, p, [&](const Scope& in) { return Outputs{in.op("Cos", {inner[1]})}; },
        [&](const Scope& in) { return Outputs{in.op("Exp", {inner[1]})}; })[0];
    return Outputs{outer.op("AddV2", {v[0], outer.constant(1)}), outer.op("Tanh", {branch})};
  });
  std::vector<double> n = c.count({out[1]});
  CHECK(c.of(n, "Sin") == 35);
  CHECK(c.of(n, "Cos") == 5);
  CHECK(c.of(n, "Exp") == 5);
  CHECK(c.of(n, "Tanh") == 5);
  CHECK(n[static_cast<size_t>(out[1].node->id())] == 1);

  const auto dx = gradients(c.s, {out[1]}, {x});
  REQUIRE(dx.ok());
  n = c.count({(*dx)[0]});
  CHECK(c.of(n, "TanhGrad") == 5);
  // By the sines: how often the loop within ran is in a list.
  CHECK(c.of(n, "Cos", "gradients") == 5 * kUnknownIterations);
}

TEST_CASE("what was measured counts before bounds, and tells of nodes beside it") {
  Counted c;
  const Output x = c.s.constant(1.f);
  const Output out = c.loop(
      x, 0, 1,
      [&](const Scope& in, Output i) {
        return in.op("Less", {i, c.s.constant(50)});
      },
      "known");
  CostModel costs;
  for (int id = 0; id < c.graph.size(); ++id)
    if (c.graph.node(id).op().name() == "Square") costs.add(c.graph.node(id).name(), "cpu", 100, 4, 5, 30);
  std::vector<double> n = c.count({out}, &costs);
  CHECK(c.of(n, "Square") == 30);
  CHECK(c.of(n, "AddV2") == 30);
  CHECK(c.of(n, "Less") == 31);

  // A branch that a step in four takes.
  const Output p = c.placeholder("p", PartialShape::scalar(), DType::kBool);
  const Output either = cond(
      c.s, p, [&](const Scope& in) { return Outputs{in.named("rare").op("Sin", {x})}; },
      [&](const Scope& in) { return Outputs{in.op("Cos", {x})}; })[0];
  costs.add("cond/then/rare", "cpu", 100, 4, 5, 0.25);
  n = c.count({either}, &costs);
  CHECK(c.of(n, "Sin") == 0.25);
  CHECK(c.of(n, "Cos") == 1);
}

TEST_CASE("a loop's nodes take the time of all iterations, and cross as often") {
  Counted c;
  const Output x = c.s.constant(Tensor::zeros(DType::kFloat32, {64, 64}).value());
  const Outputs out = while_loop(
      c.s, {c.s.constant(0), x},
      [](const Scope& in, const Outputs& v) {
        return in.op("Less", {v[0], in.constant(50)});
      },
      [](const Scope& in, const Outputs& v) {
        const Output product = in.device("/sim:0").op("MatMul", {v[1], v[1]});
        return Outputs{in.op("AddV2", {v[0], in.constant(1)}), in.device("/sim:1").op("Tanh", {product})};
      });
  REQUIRE(c.s.ok());
  PlacementOptions options;
  for (const char* device : {"sim:0", "sim:1"})
    options.devices.push_back({fmt::format("/job:localhost/replica:0/task:0/device:{}", device),
                               {.flops = 1e9, .memory_bandwidth = 1e12, .launch_ns = 10}});
  options.link = {.bandwidth = 1e9, .latency_ns = 100};
  options.placing = Placing::kByHand;
  const auto placed = place(c.graph, {}, std::span(&out[1], 1), {}, options);
  REQUIRE(placed.ok());
  const double product = 10 + 2.0 * 64 * 64 * 64;
  for (const NodePlacement& n : placed->nodes) {
    if (n.node->op().name() != "MatMul") continue;
    CHECK(n.firings == 50);
    CHECK(n.estimated_ns == Approx(product));
    CHECK(n.finish_ns - n.start_ns == Approx(50 * product));
  }
  CHECK(placed->busy_ns[1] == Approx(50 * (10.0 + 64 * 64)));
  const auto there = std::ranges::find(placed->links, 1u, &LinkUse::to);
  REQUIRE(there != placed->links.end());
  CHECK(there->transfers == 50);
  CHECK(there->bytes == 50.0 * 64 * 64 * 4);
  CHECK(placed->step_ns > 50 * (product + 10 + 64 * 64 + 100 + 64 * 64 * 4));
}
