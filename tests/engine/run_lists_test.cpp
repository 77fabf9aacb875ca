// SPDX-License-Identifier: Apache-2.0
// The short forms of Session::run: each way to write a list means one thing, and what is empty is an error.
#include "tests/engine/fixtures.h"

namespace troupe {
namespace {

struct Sums : TestEngine {
  const Output x = placeholder(DType::kFloat32, {}, "x"), y = placeholder(DType::kFloat32, {}, "y");
  const Output sum = scope.named("sum").op("AddV2", {x, y}), twice = scope.named("twice").op("AddV2", {x, x});
  const Output one = scope.constant(1.f), two = scope.named("two").op("AddV2", {one, one});
  const Output three = scope.named("three").op("AddV2", {two, one});
  const Output count = variable("count", DType::kFloat32, {});
  const Node* const reset = scope.named("reset").node("AssignVariableOp", {count, scope.constant(0.f)});
  const Node* const add = scope.named("add").node("AssignAddVariableOp", {count, one});
  const Node* const add_two = scope.named("add_two").node("AssignAddVariableOp", {count, two});

  float counted() {
    return (*session->run(scope.op("ReadVariableOp", {count}, {{"dtype", DType::kFloat32}})))[0].data<float>()[0];
  }
  static Tensor f(float v) { return Tensor::scalar(v); }
};

std::vector<float> floats(const RunResult& result) {
  INFO((result.ok() ? "" : result.error().str()));
  REQUIRE(result.ok());
  std::vector<float> out;
  for (const Tensor& t : *result) out.push_back(t.data<float>()[0]);
  return out;
}

using Floats = std::vector<float>;

TEST_CASE("fetches are run without feeds", "[run_lists]") {
  Sums t;
  const std::vector<Output> both = {t.two, t.three};
  CHECK(floats(t.session->run(t.two)) == Floats{2});
  CHECK(floats(t.session->run({t.two})) == Floats{2});
  CHECK(floats(t.session->run({t.two, t.three})) == Floats{2, 3});
  CHECK(floats(t.session->run({t.three, t.two, t.three})) == Floats{3, 2, 3});
  CHECK(floats(t.session->run(both)) == Floats{2, 3});
  CHECK(floats(t.session->run(std::vector<Output>(both))) == Floats{2, 3});
  CHECK(floats(t.session->run(t.two.node->out())) == Floats{2});
  CHECK(floats(t.session->run({{t.two.node, 0}})) == Floats{2});
  CHECK(floats(t.session->run({{t.two.node, 0}, {t.three.node, 0}})) == Floats{2, 3});
  CHECK(floats(t.session->run({t.two}, {.check_numerics = true})) == Floats{2});
  CHECK(floats(t.session->run({}, {t.two, t.three})) == Floats{2, 3});
  CHECK(floats(t.session->run({}, both)) == Floats{2, 3});
  CHECK(floats(t.session->run(std::vector<Feed>{}, both)) == Floats{2, 3});
}

TEST_CASE("targets are run without feeds and fetches", "[run_lists]") {
  Sums t;
  const std::vector<const Node*> both = {t.add, t.add_two};
  REQUIRE(t.session->run(t.reset).ok());
  CHECK(floats(t.session->run(t.add)).empty());
  CHECK(t.counted() == 1);
  CHECK(t.session->run({t.add}).ok());
  CHECK(t.counted() == 2);
  CHECK(t.session->run({t.add, t.add_two}).ok());
  CHECK(t.counted() == 5);
  CHECK(t.session->run(both).ok());
  CHECK(t.session->run({}, {}, both).ok());
  CHECK(t.session->run({}, {}, {t.add, t.add_two}).ok());
  CHECK(t.session->run({}, std::vector<Output>{}, both).ok());
  CHECK(t.counted() == 17);
  CHECK(t.session->run(t.add, {.deadline = std::chrono::minutes(1)}).ok());
  CHECK(t.session->run(both, {.deadline = std::chrono::minutes(1)}).ok());
  CHECK(t.counted() == 21);
  CHECK(floats(t.session->run(t.two, t.add)) == Floats{2});
  CHECK(floats(t.session->run({t.two, t.three}, {t.add, t.add_two})) == Floats{2, 3});
  CHECK(t.counted() == 25);
}

TEST_CASE("feeds go with fetches, targets or both", "[run_lists]") {
  Sums t;
  REQUIRE(t.session->run(t.reset).ok());
  const Node* put = t.scope.node("AssignVariableOp", {t.count, t.sum});
  const std::vector<Feed> feeds = {{t.x, Sums::f(3)}, {t.y, Sums::f(4)}};
  CHECK(floats(t.session->run({{t.x, Sums::f(3)}}, {t.twice})) == Floats{6});
  CHECK(floats(t.session->run({{t.x, Sums::f(3)}}, t.twice)) == Floats{6});
  CHECK(floats(t.session->run({{t.x, Sums::f(3)}, {t.y, Sums::f(4)}}, {t.sum, t.twice})) == Floats{7, 6});
  CHECK(floats(t.session->run(feeds, {t.sum})) == Floats{7});
  CHECK(t.session->run(feeds, {}, {put, t.add}).ok());
  CHECK(t.session->run(feeds, {}, put).ok());
  CHECK(t.counted() == 7);
  CHECK(t.session->run({{t.x, Sums::f(1)}, {t.y, Sums::f(1)}}, {}, put).ok());
  CHECK(t.counted() == 2);
  CHECK(floats(t.session->run_future(feeds, t.sum).get()) == Floats{7});
}

TEST_CASE("names are looked up", "[run_lists]") {
  Sums t;
  REQUIRE(t.session->run({}, {}, {"reset"}).ok());
  CHECK(floats(t.session->run({{"x", Sums::f(3)}}, {"twice"})) == Floats{6});
  CHECK(floats(t.session->run({{"x", Sums::f(3)}}, "twice:0")) == Floats{6});
  CHECK(floats(t.session->run({{"x", Sums::f(3)}, {"y:0", Sums::f(4)}}, {"sum", "twice"}, {"add"})) == Floats{7, 6});
  CHECK(floats(t.session->run({}, {"two", "three"})) == Floats{2, 3});
  CHECK(t.session->run({}, {}, {"add", "add_two"}).ok());
  CHECK(t.counted() == 4);
  CHECK(t.session->run({}, {"nothing"}).error().code == Code::kNotFound);
}

TEST_CASE("values of a prepared run are braces or a vector", "[run_lists]") {
  Sums t;
  auto prepared = t.session->prepare({t.x, t.y}, {t.sum});
  REQUIRE(prepared.ok());
  const std::vector<Tensor> values = {Sums::f(3), Sums::f(4)};
  CHECK(floats(t.session->run(*prepared, {Sums::f(3), Sums::f(4)})) == Floats{7});
  CHECK(floats(t.session->run(*prepared, values)) == Floats{7});
  CHECK(floats(t.session->run(*prepared, std::vector<Tensor>(values))) == Floats{7});
  CHECK(t.session->run(*prepared).error().code == Code::kInvalidArgument);
}

TEST_CASE("an empty output or node is an error", "[run_lists]") {
  Sums t;
  const Node* const none = nullptr;
  const auto refused = [](const RunResult& result, std::string_view text) {
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().code == Code::kInvalidArgument);
    INFO(result.error().message);
    CHECK(result.error().message.find(text) != std::string::npos);
  };
  refused(t.session->run(Output{}), "an empty output cannot be fetched");
  refused(t.session->run({t.two, Output{}}), "an empty output cannot be fetched");
  refused(t.session->run({{Output{}, Sums::f(1)}}, {t.two}), "an empty output cannot be fed");
  refused(t.session->run(none), "an empty node cannot be a target");
  refused(t.session->run({t.add, none}), "an empty node cannot be a target");
  refused(t.session->run({}, {}, {nullptr}), "an empty node cannot be a target");
  refused(t.session->run({t.two}, none), "an empty node cannot be a target");
  CHECK(t.session->run({{t.two.node, 1}}).error().code == Code::kNotFound);
}

}  // namespace
}  // namespace troupe
