// SPDX-License-Identifier: Apache-2.0
// Passes over steps, through sessions: what they save, what they leave as it was.
#include <catch2/catch.hpp>

#include "tests/actors/fixtures.h"

namespace troupe {
namespace {

/// Nodes fired by one run of `fetches` in a session of its own.
int64_t nodes_of(TestEngine& t, const GraphPasses& passes, const std::vector<Feed>& feeds,
                 const std::vector<Output>& fetches, const std::vector<const Node*>& targets = {}) {
  Session session(*t.engine, t.graph, {.passes = passes});
  const int64_t before = t.engine->device_stats()[0].nodes;
  auto r = session.run(feeds, fetches, targets);
  INFO((r.ok() ? "" : r.error().str()));
  REQUIRE(r.ok());
  int64_t after = before;  // counted a moment after the step has answered
  while (after == before) after = t.engine->device_stats()[0].nodes;
  return after - before;
}

TEST_CASE("a value that two nodes compute is computed once, unless one is fed") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, {});
  const Output a = t.scope.op("Exp", {x}), b = t.scope.op("Exp", {x});
  const Output sum = t.scope.op("AddV2", {a, b});
  const std::vector<Feed> feeds = {{x, Tensor::scalar(0.f)}};
  CHECK(nodes_of(t, {}, feeds, {sum}) == 2);
  CHECK(nodes_of(t, GraphPasses::none(), feeds, {sum}) == 3);
  auto r = t.session->run(feeds, {a, b, sum});
  REQUIRE(r.ok());
  CHECK((*r)[1].identical(Tensor::scalar(1.f)));
  CHECK((*r)[2].identical(Tensor::scalar(2.f)));
  r = t.session->run({{x, Tensor::scalar(0.f)}, {b, Tensor::scalar(5.f)}}, {sum});
  REQUIRE(r.ok());
  CHECK((*r)[0].identical(Tensor::scalar(6.f)));
}

TEST_CASE("random ops of one seed stay apart and keep their sequences beside other plans") {
  TestEngine t;
  const Attrs seed = {{"seed", int64_t{7}}, {"seed2", int64_t{8}}, {"dtype", DType::kFloat32}};
  const Output shape = t.scope.constant(Tensor::of<int32_t>({2}));
  const Output a = t.scope.op("RandomUniform", {shape}, seed), b = t.scope.op("RandomUniform", {shape}, seed);
  const Output difference = t.scope.op("Sub", {a, b});
  // Both draw the same sequence; a step that needs only one of them moves that one on.
  auto r = t.session->run({}, std::vector<Output>{difference});
  REQUIRE(r.ok());
  CHECK((*r)[0].identical(Tensor::of<float>({0, 0})));
  REQUIRE(t.session->run({}, std::vector<Output>{a}).ok());
  r = t.session->run({}, std::vector<Output>{difference});
  REQUIRE(r.ok());
  CHECK_FALSE((*r)[0].identical(Tensor::of<float>({0, 0})));
}

TEST_CASE("a run that checks numerics names the node of the graph") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, {});
  t.scope.named("first").op("Log", {x});
  const Output second = t.scope.named("second").op("Log", {x});
  const Output sum = t.scope.op("AddV2", {*t.graph.output("first"), second});
  REQUIRE(t.session->run({{x, Tensor::scalar(-1.f)}}, {sum}).ok());
  for (int i = 0; i < 2; ++i) {
    auto r = t.session->run({{x, Tensor::scalar(-1.f)}}, {second}, {}, {.check_numerics = true});
    REQUIRE_FALSE(r.ok());
    CHECK(r.error().node == "second");
  }
  CHECK(t.session->run({{x, Tensor::scalar(1.f)}}, {second}, {}, {.check_numerics = true}).ok());
}

}  // namespace
}  // namespace troupe
