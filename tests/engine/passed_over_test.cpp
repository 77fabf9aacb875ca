// SPDX-License-Identifier: Apache-2.0
// Steps that go on for ever do not keep a device from others, whatever the nodes of either cost.
#include <chrono>

#include "tests/engine/fixtures.h"
#include "troupe/control_flow.h"

using namespace troupe;

namespace {

/// A loop that never ends, with one node a turn.
Output forever(const Scope& scope, Output value) {
  return while_loop(
      scope, {value}, [](const Scope& s, const Outputs&) { return s.constant(Tensor::scalar(true)); },
      [](const Scope& s, const Outputs& v) { return Outputs{s.op("Neg", {v[0]})}; })[0];
}

}  // namespace

TEST_CASE("a step is not passed over for ever by loops that do not end") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, PartialShape::scalar());
  // The planner takes nodes that make a megabyte for expensive.
  const Output large = t.scope.constant(*Tensor::zeros(DType::kFloat32, Shape{512, 1024}));
  const Output cheap = forever(t.scope, x), expensive = forever(t.scope, t.scope.op("AddV2", {large, x}));
  Output sum = t.scope.op("AddV2", {large, x});
  for (int i = 0; i < 3; ++i) sum = t.scope.op("AddV2", {sum, x});
  sum = t.scope.op("Max", {sum, t.scope.constant(Tensor::of<int32_t>({0, 1}))});
  REQUIRE(t.scope.ok());

  struct Beside {
    int cheap, expensive;
    bool by_counts;
  };
  const auto [cheap_ones, expensive_ones, by_counts] = GENERATE(
      Beside{1, 0, false}, Beside{0, 1, false}, Beside{2, 2, false}, Beside{1, 1, true}, Beside{35, 35, false});
  INFO(cheap_ones << " cheap, " << expensive_ones << " expensive, by counts: " << by_counts);
  SessionOptions of_endless;
  if (by_counts) of_endless.priority = [](const Node& n) { return n.op().name() == "Max" ? 1 : 0; };
  Session endless(*t.engine, t.graph, of_endless);
  CancelToken cancel;
  RunOptions options;
  options.cancel = cancel;
  std::vector<std::future<RunResult>> results;
  for (int i = 0; i < std::max(cheap_ones, expensive_ones); ++i) {
    if (i < cheap_ones) results.push_back(endless.run_future({{x, f(1)}}, {cheap}, {}, options));
    if (i < expensive_ones) results.push_back(endless.run_future({{x, f(1)}}, {expensive}, {}, options));
  }
  for (int i = 0; i < 2; ++i) {
    const RunResult result = t.session->run({{x, f(2)}}, {sum}, {}, {.deadline = std::chrono::minutes(1)});
    INFO((result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    CHECK(number((*result)[0]) == 8);
  }
  cancel.cancel();
  for (auto& result : results) refused(result.get(), Code::kCancelled);
}

TEST_CASE("a step is passed over for what is urgent in a loop that does not end, not for what was before it") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, PartialShape::scalar());
  const Output large = t.scope.constant(*Tensor::zeros(DType::kFloat32, Shape{512, 1024}));
  const Output sum = t.scope.op("AddV2", {t.scope.op("AddV2", {large, x}), x});
  const Output endless = forever(t.scope, t.scope.named("urgent").op("Exp", {x}));
  REQUIRE(t.scope.ok());
  SessionOptions first;
  first.priority = [](const Node& n) { return n.name() == "urgent" ? 5 : 0; };
  Session urgent(*t.engine, t.graph, first);
  CancelToken cancel;
  RunOptions options;
  options.cancel = cancel;
  std::vector<std::future<RunResult>> results;
  for (int i = 0; i < 2; ++i) results.push_back(urgent.run_future({{x, f(1)}}, {endless}, {}, options));
  for (int i = 0; i < 2; ++i)
    CHECK(t.session->run({{x, f(2)}}, {}, {sum.node}, {.deadline = std::chrono::minutes(1)}).ok());
  cancel.cancel();
  for (auto& result : results) refused(result.get(), Code::kCancelled);
}

TEST_CASE("a step that was placed by cost is not passed over for ever") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, PartialShape::scalar());
  const Output large = t.scope.constant(*Tensor::zeros(DType::kFloat32, Shape{512, 1024}));
  const Output sum = t.scope.op("AddV2", {t.scope.op("AddV2", {large, x}), x});
  const Output endless = t.scope.op("Neg", {forever(t.scope, t.scope.op("AddV2", {large, x}))});
  REQUIRE(t.scope.ok());
  SessionOptions by_cost;
  by_cost.placing = Placing::kByCost;
  Session placed(*t.engine, t.graph, by_cost);
  Session* const beside = GENERATE(false, true) ? &placed : t.session.get();
  CancelToken cancel;
  RunOptions options;
  options.cancel = cancel;
  auto result = beside->run_future({{x, f(1)}}, {endless}, {}, options);
  for (int i = 0; i < 2; ++i)
    CHECK(placed.run({{x, f(2)}}, {}, {sum.node}, {.deadline = std::chrono::minutes(1)}).ok());
  cancel.cancel();
  refused(result.get(), Code::kCancelled);
}

TEST_CASE("a step that does not end gives way to a greater priority alone") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, PartialShape::scalar());
  const Output large = t.scope.constant(*Tensor::zeros(DType::kFloat32, Shape{512, 1024}));
  const Output less = t.scope.op("AddV2", {large, x});
  SessionOptions first;
  first.priority = [](const Node&) { return 1; };
  Session urgent(*t.engine, t.graph, first);
  REQUIRE(t.scope.ok());
  CancelToken cancel;
  RunOptions options;
  options.cancel = cancel;
  auto endless = urgent.run_future({{x, f(1)}}, {forever(t.scope, t.scope.op("AddV2", {large, x}))}, {}, options);
  const auto passed_over = t.session->run({{x, f(2)}}, {less}, {}, {.deadline = std::chrono::milliseconds(400)});
  refused(passed_over, Code::kDeadlineExceeded);
  cancel.cancel();
  refused(endless.get(), Code::kCancelled);
  CHECK(t.session->run({{x, f(2)}}, {less}).ok());
}
