// SPDX-License-Identifier: Apache-2.0
// Shape and gradient functions that ask for inputs, outputs and attributes that there are not, or that use the graph.
#include <catch2/catch.hpp>
#include <functional>
#include <utility>

#include "tests/graph/fake_ops.h"
#include "troupe/gradients.h"

using namespace troupe;
using Catch::Contains;

namespace {

/// z = Asks(x, y), whose functions do what a test says.
struct Asking {
  Asking() {
    test::register_fake_ops(ops);
    ops.add(OpDef("Asks")
                .input("x: T")
                .input("y: T")
                .output("z: T")
                .attr("T: type")
                .doc("A test's.")
                .shape([this](ShapeContext& c) -> Status {
                  if (const auto once = std::exchange(in_shape, nullptr)) once(c);
                  c.set_output(0, c.input(0));
                  return {};
                }),
            gradient([this](GradientContext& c) -> Status {
              in_gradient(c);
              return {};
            }));
  }
  Result<const Node*> add() { return graph.add({"Asks", "it", {x, y}}); }

  std::function<void(ShapeContext&)> in_shape;
  std::function<void(GradientContext&)> in_gradient;
  OpRegistry ops;
  Graph graph{ops};
  Scope scope{graph};
  Output x, y;
};

struct Ready : Asking {
  Ready() {
    for (Output* o : {&x, &y})
      *o = scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{}}});
  }
};

}  // namespace

TEST_CASE("a shape function that asks for what there is not is the error of its node") {
  const std::string input = "the shape function asks for input 2, but the node has 2 inputs";
  const std::vector<std::pair<std::function<void(ShapeContext&)>, std::string>> cases = {
      {[](ShapeContext& c) { (void)c.input(2); }, input},
      {[](ShapeContext& c) { (void)c.input_dtype(2); }, input},
      {[](ShapeContext& c) { (void)c.source(2); }, input},
      {[](ShapeContext& c) { (void)c.constant_input(2); }, input},
      {[](ShapeContext& c) { (void)c.with_rank(2, 1).ok(); }, input},
      {[](ShapeContext& c) { (void)c.input(-1); }, "asks for input -1, but the node has 2 inputs"},
      {[](ShapeContext& c) { c.set_output(1, {}); }, "asks for output 1, but the node has 1 output"},
      {[](ShapeContext& c) { (void)c.attr<int64_t>("n"); },
       "there is no attribute 'n' of the type asked for; there are: T: type"},
      {[](ShapeContext& c) { (void)c.attr<int64_t>("T"); },
       "there is no attribute 'T' of the type asked for; there are: T: type"}};
  Ready a;
  for (const auto& [ask, text] : cases) {
    a.in_shape = ask;
    const auto added = a.add();
    REQUIRE_FALSE(added.ok());
    CHECK(added.error().op == "Asks");
    CHECK(added.error().node == "it");
    CHECK_THAT(added.error().message, Contains(text));
  }
  CHECK(a.graph.size() == 2);
  CHECK(a.add().ok());
}

TEST_CASE("a gradient function that asks for what there is not is the error of its node") {
  const std::vector<std::pair<std::function<void(GradientContext&)>, std::string>> cases = {
      {[](GradientContext& c) { (void)c.input(2); },
       "the gradient function asks for input 2, but the node has 2 inputs"},
      {[](GradientContext& c) { (void)c.output(1); }, "asks for output 1, but the node has 1 output"},
      {[](GradientContext& c) { (void)c.output(-1); }, "asks for output -1, but the node has 1 output"},
      {[](GradientContext& c) { (void)c.dy(1); }, "asks for output 1, but the node has 1 output"},
      {[](GradientContext& c) { c.set_dx(2, {}); }, "asks for input 2, but the node has 2 inputs"}};
  for (const auto& [ask, text] : cases) {
    Ready a;
    a.in_gradient = ask;
    const auto dx = gradients(a.scope, {(*a.add())->out()}, {a.x});
    REQUIRE_FALSE(dx.ok());
    CHECK(dx.error().op == "Asks");
    CHECK(dx.error().node == "it");
    CHECK_THAT(dx.error().message, Contains(text));
  }
}

TEST_CASE("a shape function may look nodes up and add some") {
  Ready a;
  a.in_shape = [&](ShapeContext&) {
    {
      const std::lock_guard lock(a.graph.mutex());
      CHECK(a.graph.size() == 2);
    }
    CHECK(a.scope.named("beside").op("Neg", {a.x}));
  };
  const auto added = a.add();
  REQUIRE(added.ok());
  CHECK(a.graph.size() == 4);
  CHECK(a.graph.find("beside")->id() == 2);
  CHECK((*added)->id() == 3);
  CHECK(&a.graph.node(3) == *added);
  CHECK(a.graph.find("it") == *added);
}

TEST_CASE("a name that the shape function gives away is in use") {
  Ready a;
  a.in_shape = [&](ShapeContext&) { CHECK(a.graph.add({"Neg", "it", {a.x}}).ok()); };
  const auto added = a.add();
  REQUIRE_FALSE(added.ok());
  CHECK(added.error().code == Code::kAlreadyExists);
  CHECK(added.error().node == "it");
  CHECK(a.graph.size() == 3);
  CHECK(a.graph.find("it")->op().name() == "Neg");
}
