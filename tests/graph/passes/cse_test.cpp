// SPDX-License-Identifier: Apache-2.0
// Merging of common subexpressions, and DOT.
#include "graph/passes/cse.h"

#include <catch2/catch.hpp>

#include "tests/graph/fake_ops.h"

using namespace troupe;

namespace {

/// What each node of the graph merges into, by name.
std::string merged(const Graph& graph, std::span<const Output> fed = {}) {
  std::vector<const Node*> nodes;
  for (int i = 0; i < graph.size(); ++i) nodes.push_back(&graph.node(i));
  StepGraph step(graph, fed, {}, nodes);
  CommonSubexpressions common(step);
  std::string out;
  step.sweep([&](const Node& n) {
    const Node* same = common.find(n);
    if (!same) return;
    out += n.name() + "=" + same->name() + " ";
    std::vector<Output> by;
    for (int port = 0; port < same->num_outputs(); ++port) by.push_back({same, port});
    step.replace(n, by);
  });
  return out;
}

}  // namespace

TEST_CASE("nodes that compute the same merge, through several levels") {
  test::Fixture f;
  const Output x = f.placeholder("x", {});
  f.placeholder("y", {});
  const Output c1 = f.scope.named("c1").constant(2.0F), c2 = f.scope.named("c2").constant(2.0F);
  const Output c3 = f.scope.named("c3").constant(3.0F);
  const Output a = f.scope.named("a").op("Mul", {x, c1}), b = f.scope.named("b").op("Mul", {x, c2});
  f.scope.named("d").op("Mul", {x, c3});
  const Output a2 = f.scope.named("a2").op("Neg", {a});
  f.scope.named("b2").op("Neg", {b});
  CHECK(merged(f.graph) == "c2=c1 b=a b2=a2 ");
  CHECK(merged(f.graph, {&a, 1}) == "c2=c1 ");
  CHECK(merged(f.graph, {&a2, 1}) == "c2=c1 b=a ");
}

TEST_CASE("state, devices, attributes, ports and control inputs keep nodes apart") {
  test::Fixture f;
  const Attrs dtype = {{"dtype", DType::kFloat32}};
  const Output h = f.scope.op("Handle", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape::scalar()}});
  const Output x = f.scope.op("Read", {h}, dtype);
  f.scope.op("Read", {h}, dtype);
  f.scope.op("NoOp", {});
  const Node* no_op = f.scope.node("NoOp", {});
  f.scope.named("cpu0").device("/cpu:0").op("Neg", {x});
  f.scope.named("cpu1").device("/cpu:1").op("Neg", {x});
  const Node* pair = f.scope.node("Pair", {x});
  f.scope.named("p0").op("Neg", {pair->out(0)});
  f.scope.named("p1").op("Neg", {pair->out(1)});
  f.scope.named("i32").op("Cast", {x}, {{"DstT", DType::kInt32}});
  f.scope.named("f64").op("Cast", {x}, {{"DstT", DType::kFloat64}});
  f.scope.named("free").op("OnesLike", {x});
  f.scope.named("waits").after({no_op}).op("OnesLike", {x});
  CHECK(merged(f.graph).empty());
  f.scope.named("waits_too").after({no_op}).op("OnesLike", {x});
  CHECK(merged(f.graph) == "waits_too=waits ");
}

TEST_CASE("many nodes on one input that differ in attributes are told apart, and constants by their last byte") {
  test::Fixture f;
  const Output x = f.placeholder("x", {});
  std::string expected;
  for (int round = 0; round < 2; ++round)
    for (int i = 0; i < 300; ++i) {
      const std::string name = fmt::format("p{}_{}", round, i);
      f.scope.named(name).op("Pool", {x},
                             {{"ksize", std::vector<int64_t>{i, 1, 1, 1}}, {"padding", std::string("SAME")}});
      if (round == 1) expected += fmt::format("{}=p0_{} ", name, i);
    }
  std::vector<float> values(1000, 0.5f);
  f.scope.named("c").constant(Tensor::of<float>(std::span<const float>(values)));
  f.scope.named("same").constant(Tensor::of<float>(std::span<const float>(values)));
  values[501] = 1;
  f.scope.named("other").constant(Tensor::of<float>(std::span<const float>(values)));
  CHECK(merged(f.graph) == expected + "same=c ");
}

TEST_CASE("dot draws nodes, edges and scopes") {
  test::Fixture f;
  const Output x = f.scope.scope("in").named("x").constant(1.0F);
  const Node* y = f.scope.named("y").device("/cpu:1").node("Neg", {x});
  f.scope.after({y}).node("NoOp", {});
  const std::string dot = f.graph.dot();
  CHECK_THAT(dot, Catch::StartsWith("digraph"));
  CHECK_THAT(dot, Catch::Contains("label=\"in\"") && Catch::Contains("n0 -> n1 [label=\"float32 []\"]"));
  CHECK_THAT(dot, Catch::Contains("n1 -> n2 [style=dashed]") && Catch::Contains("Neg\n/cpu:1"));
}
