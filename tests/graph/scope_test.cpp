// SPDX-License-Identifier: Apache-2.0
// Scopes: names, devices, control dependencies, the first error.
#include <catch2/catch.hpp>

#include "tests/graph/fake_ops.h"

using namespace troupe;
using Catch::Contains;

TEST_CASE("scopes prefix names and stay apart") {
  test::Fixture f;
  const Scope a = f.scope.scope("layer");
  CHECK(a.prefix() == "layer/");
  const Scope b = f.scope.scope("layer"), c = f.scope.scope("layer");
  CHECK(b.prefix() == "layer_1/");
  CHECK(c.prefix() == "layer_2/");
  CHECK(a.scope("inner").prefix() == "layer/inner/");
  CHECK(a.scope("inner").prefix() == "layer/inner_1/");
  CHECK(a.op("NoOp", {}) == Output{});
  CHECK(f.graph.find("layer/NoOp"));
  const Output x = a.named("x").constant(1.0F);
  CHECK(x.node->name() == "layer/x");
  CHECK(a.named("x").constant(1.0F).node->name() == "layer/x_1");
  CHECK(a.constant(2).dtype() == DType::kInt32);
  f.scope.named("taken").constant(1.0F);
  CHECK(f.scope.scope("taken").prefix() == "taken_1/");
  CHECK(f.scope.scope("layer_1").prefix() == "layer_1_1/");
}

TEST_CASE("scopes carry devices and control inputs") {
  test::Fixture f;
  const Output x = f.scope.constant(1.0F);
  const Scope s = f.scope.device("/cpu:1").after({x}).after(std::vector<const Node*>{x.node, nullptr});
  const Node* n = s.node("NoOp", {});
  CHECK(n->device() == "/cpu:1");
  CHECK(n->control_inputs() == std::vector<const Node*>{x.node});
  CHECK(s.device("").node("NoOp", {})->device().empty());
}

TEST_CASE("a scope does not go where a node of another graph goes") {
  test::Fixture f, other;
  const Output there = other.scope.constant(1.0F);
  const Scope s = f.scope.colocate(there.node);
  CHECK(!s.constant(1.0F));
  CHECK_THAT(f.scope.status().error().str(), Contains("scope_test.cpp:") && Contains("another graph"));
  CHECK(other.scope.colocate(there.node).colocate(nullptr).constant(2.0F));
}

TEST_CASE("the first error sticks, with the caller's line") {
  test::Fixture f;
  const Scope inner = f.scope.scope("inner");
  const Output bad = inner.named("bad").op("Nonsense", {});
  CHECK(!bad);
  CHECK(!f.scope.ok());
  CHECK_THAT(f.scope.status().error().str(), Contains("scope_test.cpp:") && Contains("Nonsense 'inner/bad'"));
  const int size = f.graph.size();
  CHECK(!f.scope.constant(1.0F));
  CHECK(!inner.op("Neg", {bad}));
  CHECK(f.graph.size() == size);
  f.scope.fail(invalid_argument("a later fault"));
  CHECK_THAT(f.scope.status().error().message, !Contains("later"));
}
