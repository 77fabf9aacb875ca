// SPDX-License-Identifier: Apache-2.0
// Replacement of nodes in what a step needs.
#include "graph/step_graph.h"

#include <catch2/catch.hpp>

#include "tests/graph/fake_ops.h"

using namespace troupe;

namespace {

std::string names(const StepGraph& step) {
  std::string out;
  for (const Node* n : step.nodes()) out += n->name() + " ";
  return out;
}

/// Puts `by` in place of the node `name`.
void replace(StepGraph& step, const std::string& name, Output by) {
  step.sweep([&](const Node& n) {
    if (n.name() == name) step.replace(n, {&by, 1});
  });
}

}  // namespace

TEST_CASE("what reads a replaced node reads what stands in its place, also through a chain") {
  test::Fixture f;
  const Output x = f.placeholder("x", {});
  const Output a = f.scope.named("a").op("Neg", {x}), b = f.scope.named("b").op("Neg", {a});
  const Output c = f.scope.named("c").op("Neg", {b});
  const Node* done = f.scope.named("done").after({b}).node("NoOp", {});
  StepGraph step(f.graph, {}, {&c, 1}, {&done, 1});
  REQUIRE(names(step) == "x a b c done ");
  replace(step, "b", a);
  replace(step, "a", x);
  CHECK(step.now(b) == x);
  CHECK(step.now(c) == c);
  step.drop_unneeded();
  CHECK(names(step) == "x c done ");
  std::string waits_for;
  step.for_each_control(*done, [&](const Output& o) { waits_for += o.node->name(); });
  CHECK(waits_for == "x");
  CHECK(f.graph.size() == 5);
}

TEST_CASE("a made node comes before what reads it, and is visited before it") {
  test::Fixture f;
  const Output x = f.placeholder("x", {2});
  const Output a = f.scope.named("a").op("Neg", {x}), b = f.scope.named("b").op("Mul", {a, a});
  StepGraph step(f.graph, {}, {&b, 1}, {});
  std::string visited;
  step.sweep([&](const Node& n) {
    visited += n.op().name() + " ";
    if (n.name() != "a" || step.is_made(n)) return;
    auto ones = step.add({.op = "OnesLike", .name = "a", .inputs = {x}});
    REQUIRE(ones.ok());
    auto product = step.add({.op = "Mul", .name = "a", .inputs = {(*ones)->out(), x}});
    REQUIRE(product.ok());
    const Output by = (*product)->out();
    step.replace(n, {&by, 1});
  });
  CHECK(visited == "Placeholder Neg OnesLike Mul Mul ");
  CHECK(names(step) == "x a a b ");
  CHECK(step.ids() == 5);
  CHECK(&step.node(4) == step.now(a).node);
  CHECK(step.now(a).shape() == PartialShape{2});
  auto wrong = step.add({.op = "Mul", .name = "a", .inputs = {x}});
  CHECK_FALSE(wrong.ok());
  CHECK(step.ids() == 5);
}

TEST_CASE("what has an effect stays, and what is fed or fetched too") {
  test::Fixture f;
  const Attrs dtype = {{"dtype", DType::kFloat32}};
  const Output h = f.scope.named("h").op("Handle", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape::scalar()}});
  const Output read = f.scope.named("read").op("Read", {h}, dtype);
  const Output a = f.scope.named("a").op("Neg", {read}), b = f.scope.named("b").op("Neg", {a});
  const Output x = f.placeholder("x", {});
  const Output c = f.scope.named("c").op("Mul", {b, x});
  const Output fetched[] = {c, a};
  {
    StepGraph step(f.graph, {}, fetched, {});
    replace(step, "a", x);
    CHECK(names(step) == "h read b x c ");
    step.drop_unneeded();
    CHECK(names(step) == "h read b x c ");
    replace(step, "b", x);
    step.drop_unneeded();
    CHECK(names(step) == "h read x c ");
  }
  StepGraph step(f.graph, {&x, 1}, fetched, {});
  CHECK(step.is_fed(x));
  CHECK_FALSE(step.is_fed(a));
  replace(step, "c", x);
  step.drop_unneeded();
  CHECK(names(step) == "h read a ");
  CHECK(step.now(c) == x);
}
