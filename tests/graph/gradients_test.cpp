// SPDX-License-Identifier: Apache-2.0
// Gradients, by an interpreter of the few scalar ops of these tests.
#include "troupe/gradients.h"

#include <catch2/catch.hpp>
#include <map>

#include "tests/graph/fake_ops.h"

using namespace troupe;
using Catch::Contains;

namespace {

/// Evaluates scalar float graphs.
float eval(const Output& o, const std::map<const Node*, float>& feeds) {
  const Node& n = *o.node;
  if (const auto at = feeds.find(o.node); at != feeds.end()) return at->second;
  const std::string& op = n.op().name();
  const auto in = [&](int i) { return eval(n.inputs()[i], feeds); };
  if (op == "Const") return n.attrs().get<Tensor>("value")->data<float>()[0];
  if (op == "OnesLike") return 1;
  if (op == "Neg") return -in(0);
  if (op == "Mul") return in(0) * in(1);
  if (op == "Identity") return in(0);
  if (op == "Pair") return o.port == 0 ? in(0) : 2 * in(0);
  float sum = 0;
  REQUIRE(op == "AddN");
  for (size_t i = 0; i < n.inputs().size(); ++i) sum += in(static_cast<int>(i));
  return sum;
}

}  // namespace

TEST_CASE("gradients follow the chain rule and add up over paths") {
  test::Fixture f;
  const Output x = f.placeholder("x", PartialShape::scalar()), y = f.placeholder("y", PartialShape::scalar());
  const Output z = f.scope.op("AddN", {f.scope.op("Mul", {x, f.scope.op("Mul", {x, y})}), f.scope.op("Neg", {x})});
  const auto g = gradients(f.scope, {z}, {x, y});
  REQUIRE(g.ok());
  const std::map<const Node*, float> feeds = {{x.node, 3.0F}, {y.node, 5.0F}};
  CHECK(eval((*g)[0], feeds) == 2 * 3 * 5 - 1);
  CHECK(eval((*g)[1], feeds) == 9);
  CHECK((*g)[0].node->op().name() == "AddN");
  CHECK_THAT((*g)[0].node->name(), Catch::StartsWith("gradients/"));

  const auto second = gradients(f.scope, {(*g)[0]}, {x});
  REQUIRE(second.ok());
  CHECK(eval((*second)[0], feeds) == 10);
}

TEST_CASE("the graph of gradients is the same each time") {
  const auto build = [] {
    test::Fixture f;
    const Output x = f.placeholder("x", PartialShape::scalar());
    Output y = x;
    for (int i = 0; i < 4; ++i) y = f.scope.op("AddN", {f.scope.op("Mul", {y, x}), f.scope.op("Neg", {y}), x});
    REQUIRE(gradients(f.scope, {y}, {x}).ok());
    std::string text;
    for (int i = 0; i < f.graph.size(); ++i) {
      text += f.graph.node(i).name();
      for (const Output& in : f.graph.node(i).inputs()) text += " " + in.name();
      text += "\n";
    }
    return text;
  };
  CHECK(build() == build());
}

TEST_CASE("several ys, given dys, and outputs of one node") {
  test::Fixture f;
  const Output x = f.placeholder("x", PartialShape::scalar());
  const Node* pair = f.scope.node("Pair", {x});
  const Output seed = f.scope.constant(10.0F);
  const std::map<const Node*, float> feeds = {{x.node, 1.0F}};
  CHECK(eval((*gradients(f.scope, {pair->out(0), pair->out(1)}, {x}))[0], feeds) == 3);
  CHECK(eval((*gradients(f.scope, {pair->out(1)}, {x}, {seed}))[0], feeds) == 20);
  CHECK(eval((*gradients(f.scope, {pair->out(0), pair->out(1)}, {x}, {seed, Output{}}))[0], feeds) == 12);
  CHECK(eval((*gradients(f.scope, {x}, {x}))[0], feeds) == 1);
}

TEST_CASE("paths end at stops and where nothing is differentiable") {
  test::Fixture f;
  const Output x = f.placeholder("x", PartialShape::scalar());
  const Output u = f.scope.op("Neg", {x});
  const Output y = f.scope.op("Mul", {u, x});
  const std::map<const Node*, float> feeds = {{x.node, 3.0F}};
  CHECK(eval((*gradients(f.scope, {y}, {x}, {}, {u}))[0], feeds) == -3);
  const auto both = gradients(f.scope, {y}, {x, u}, {}, {u});
  CHECK(eval((*both)[1], feeds) == 3);
  CHECK(!(*gradients(f.scope, {f.scope.op("Floor", {x})}, {x}))[0]);
  CHECK(!(*gradients(f.scope, {u}, {f.placeholder("other", {})}))[0]);
  const Output integer = f.scope.op("Cast", {x}, {{"DstT", DType::kInt32}});
  const Output back = f.scope.op("Cast", {integer}, {{"DstT", DType::kFloat32}});
  const int before = f.graph.size();
  CHECK(!(*gradients(f.scope, {back}, {x}))[0]);
  CHECK(f.graph.size() <= before + 1);
}

TEST_CASE("the gradient by a handle is that of all its reads") {
  test::Fixture f;
  const Output h = f.scope.op("Handle", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape::scalar()}});
  const Output a = f.scope.op("Read", {h}, {{"dtype", DType::kFloat32}});
  const Output b = f.scope.op("Read", {h}, {{"dtype", DType::kFloat32}});
  const auto g = gradients(f.scope, {f.scope.op("Mul", {a, b})}, {h, a});
  REQUIRE(g.ok());
  const std::map<const Node*, float> feeds = {{a.node, 3.0F}, {b.node, 4.0F}};
  CHECK(eval((*g)[0], feeds) == 7);
  CHECK(eval((*g)[1], feeds) == 4);
}

TEST_CASE("new nodes go where those they differentiate are") {
  test::Fixture f;
  const Output x = f.placeholder("x", PartialShape::scalar());
  const Output y = f.scope.device("/cpu:1").op("Neg", {x});
  const auto g = gradients(f.scope.device("/cpu:0"), {y}, {x});
  CHECK((*g)[0].node->device() == "/cpu:1");
}

TEST_CASE("gradients refuse what cannot be differentiated") {
  test::Fixture f;
  const Output x = f.placeholder("x", PartialShape::scalar());
  const Output i = f.placeholder("i", {}, DType::kInt32);
  const Output y = f.scope.op("Neg", {x});
  const auto message = [](const Result<std::vector<Output>>& r) { return r.error().message; };
  CHECK_THAT(message(gradients(f.scope, {i}, {x})), Contains("ys[0] i:0 is int32"));
  CHECK_THAT(message(gradients(f.scope, {y}, {i})), Contains("xs[0]"));
  CHECK_THAT(message(gradients(f.scope, {Output{}}, {x})), Contains("ys[0] is empty"));
  CHECK_THAT(message(gradients(f.scope, {y}, {x}, {x, x})), Contains("2 dys for 1 ys"));
  CHECK_THAT(message(gradients(f.scope, {y}, {x}, {f.placeholder("wide", {3})})), Contains("[3]"));
  CHECK_THAT(message(gradients(f.scope, {y}, {x}, {{x.node, 7}})), Contains("dys"));
}
