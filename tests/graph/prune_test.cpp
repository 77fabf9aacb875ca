// SPDX-License-Identifier: Apache-2.0
// What a step needs.
#include "graph/prune.h"

#include <catch2/catch.hpp>

#include "tests/graph/fake_ops.h"

using namespace troupe;

namespace {
std::string names(const std::vector<const Node*>& nodes) {
  std::string out;
  for (const Node* n : nodes) out += n->name() + " ";
  return out;
}
}  // namespace

TEST_CASE("only what fetches and targets need is kept, inputs first") {
  test::Fixture f;
  const Output x = f.placeholder("x", {});
  const Output a = f.scope.named("a").op("Neg", {x});
  f.scope.named("unused").op("Neg", {a});
  const Output b = f.scope.named("b").op("Mul", {a, x});
  const Node* c = f.scope.named("c").after({a}).node("NoOp", {});
  const Output none[] = {Output{}};
  const Node* targets[] = {c};
  CHECK(names(needed_nodes(f.graph, {}, {&b, 1}, {})) == "x a b ");
  CHECK(names(needed_nodes(f.graph, {&a, 1}, {&b, 1}, {})) == "x b ");
  CHECK(names(needed_nodes(f.graph, {}, {}, targets)) == "x a c ");
  CHECK(names(needed_nodes(f.graph, {&a, 1}, {}, targets)) == "c ");
  CHECK(names(needed_nodes(f.graph, {&b, 1}, {&b, 1}, {})).empty());
  CHECK(names(needed_nodes(f.graph, {}, none, {})).empty());
  const Node* pair = f.scope.named("pair").node("Pair", {x});
  const Output both[] = {pair->out(0), pair->out(1)};
  CHECK(names(needed_nodes(f.graph, {both, 1}, both, {})) == "x pair ");
  CHECK(names(needed_nodes(f.graph, both, both, {})).empty());
}
