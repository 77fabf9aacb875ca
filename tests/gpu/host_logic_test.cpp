// SPDX-License-Identifier: Apache-2.0
// Logic of what is at the host stays there: a loop whose test combines counters makes no copy for it.
#include "tests/gpu/fake_platform.h"
#include "troupe/control_flow.h"
#include "troupe/scope.h"
#include "troupe/session.h"

namespace troupe::testing {
namespace {

using Values = std::vector<Output>;

struct LogicStage {
  FakeGpus gpus;
  std::unique_ptr<Engine> engine = std::move(*Engine::create(gpus.options()));
  Graph graph{engine->ops()};
  Scope s{graph}, gpu = s.device("/gpu:0");
  Output fed(DType dtype) { return s.op("Placeholder", {}, {{"dtype", dtype}, {"shape", PartialShape{}}}); }
  /// The fetch, and how much work it was for the card.
  std::pair<Tensor, int64_t> run(Session& session, const Output& fetch, const FeedList& feeds) {
    REQUIRE(s.ok());
    const int64_t before = gpus.runtime ? gpus.runtime->work_done() : 0;
    const auto out = session.run(feeds, {fetch});
    INFO((out.ok() ? "" : out.error().str()));
    REQUIRE(out.ok());
    return {(*out)[0], gpus.runtime ? gpus.runtime->work_done() - before : 0};
  }
};

/// Negates x until one of two counters has come to its end.
Output negated(LogicStage& stage, const Output& x, const Output& n) {
  const auto number = [](const Scope& s, int32_t v) { return s.constant(Tensor::scalar<int32_t>(v)); };
  return while_loop(
      stage.gpu, {number(stage.gpu, 0), number(stage.gpu, 100), x},
      [&](const Scope& s, const Values& v) {
        const Output more = s.op("Less", {v[0], n}), low = s.op("Less", {v[1], number(s, 50)});
        return s.op("LogicalAnd", {s.op("LogicalOr", {more, low}), s.op("LogicalNot", {low})});
      },
      [&](const Scope& s, const Values& v) {
        return Values{s.op("Add", {v[0], number(s, 1)}), s.op("Sub", {v[1], number(s, 10)}), s.op("Neg", {v[2]})};
      })[2];
}

TEST_CASE("a loop that tests two counters of int32 tests them at the host, with passes and without") {
  for (const GraphPasses passes : {GraphPasses(), GraphPasses::none()}) {
    LogicStage stage;
    const Output x = stage.fed(DType::kFloat32), n = stage.fed(DType::kInt32), y = negated(stage, x, n);
    Session session(*stage.engine, stage.graph, {.passes = passes});
    for (const int32_t times : {1, 4, 9}) {
      const int32_t ran = std::min(times, 6);  // then the other counter ends it
      const auto [got, work] = stage.run(session, y, {{x, Tensor::scalar(3.f)}, {n, Tensor::scalar(times)}});
      CHECK(got.data<float>()[0] == (ran % 2 ? -3 : 3));
      // The value goes up, is negated so often, and comes back.
      if (stage.gpus.runtime) CHECK(work == 2 + ran);
    }
  }
}

TEST_CASE("logic of what the GPU computed stays on the GPU, and of both goes there") {
  LogicStage stage;
  const Output x = stage.fed(DType::kFloat32), n = stage.fed(DType::kInt32), flag = stage.fed(DType::kBool);
  const Scope& s = stage.gpu;
  const Output there = s.op("Less", {x, s.constant(Tensor::scalar(1.f))}),
               here = s.op("Less", {n, s.constant(Tensor::scalar<int32_t>(1))});
  Session session(*stage.engine, stage.graph);
  for (const bool a : {false, true})
    for (const bool b : {false, true}) {
      const FeedList feeds{
          {x, Tensor::scalar(a ? 0.f : 2.f)}, {n, Tensor::scalar<int32_t>(b ? 0 : 2)}, {flag, Tensor::scalar(b)}};
      CHECK(*stage.run(session, s.op("LogicalNot", {there}), feeds).first.data<bool>() == !a);
      CHECK(*stage.run(session, s.op("LogicalAnd", {there, here}), feeds).first.data<bool>() == (a && b));
      CHECK(*stage.run(session, s.op("LogicalOr", {here, there}), feeds).first.data<bool>() == (a || b));
      const auto [got, work] = stage.run(session, s.op("LogicalAnd", {here, flag}), feeds);
      CHECK(*got.data<bool>() == b);
      if (stage.gpus.runtime) CHECK(work == 0);
    }
}

}  // namespace
}  // namespace troupe::testing
