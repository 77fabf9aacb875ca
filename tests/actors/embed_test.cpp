// SPDX-License-Identifier: Apache-2.0
// Steps asked for and answered by message.
#include "troupe/embed.h"

#include <caf/all.hpp>
#include <catch2/catch.hpp>
#include <latch>

#include "tests/engine/fixtures.h"
#include "troupe/control_flow.h"

namespace troupe {
namespace {

/// Asks for steps 0, 1, ... and keeps what each answers, by tag. (A class: spawning a function dereferences a null
/// pointer inside CAF 0.17, which UBSan reports.)
class Asker : public caf::event_based_actor {
 public:
  Asker(caf::actor_config& config, Session& session, std::shared_ptr<Session::Prepared> prepared, int steps,
        std::promise<std::vector<int>>& sums)
      : caf::event_based_actor(config), session_(session), prepared_(std::move(prepared)), steps_(steps), sums_(sums) {}

  caf::behavior make_behavior() override {
    answers_.assign(static_cast<size_t>(steps_), -1);
    for (int i = 0; i < steps_; ++i)
      run_step(session_, prepared_, {Tensor::scalar(i)}, caf::actor_cast<caf::actor>(this), static_cast<uint64_t>(i));
    return {[this](const StepDone& done) {
      if (done.result->ok()) answers_[done.tag] = (**done.result)[0].data<int32_t>()[0];
      if (++done_ < steps_) return;
      sums_.set_value(answers_);
      quit();
    }};
  }

 private:
  Session& session_;
  const std::shared_ptr<Session::Prepared> prepared_;
  const int steps_;
  std::promise<std::vector<int>>& sums_;
  std::vector<int> answers_;
  int done_ = 0;
};

TEST_CASE("an actor asks for steps and gets an answer for each") {
  TestEngine t;
  const Output x = t.placeholder(DType::kInt32, {});
  const Output y = t.scope.op("AddV2", {x, x});
  auto prepared = t.session->prepare({x}, {y});
  REQUIRE(prepared.ok());
  constexpr int kSteps = 100;
  std::promise<std::vector<int>> sums;
  actor_system(*t.engine).spawn<Asker>(std::ref(*t.session), *prepared, kSteps, std::ref(sums));
  const std::vector<int> got = sums.get_future().get();
  for (int i = 0; i < kSteps; ++i) CHECK(got[static_cast<size_t>(i)] == 2 * i);
}

/// Runs a step within its handler.
class Waiting : public caf::event_based_actor {
 public:
  Waiting(caf::actor_config& config, Session& session, Output fetch, std::promise<RunResult>& result)
      : caf::event_based_actor(config), session_(session), fetch_(fetch), result_(result) {}
  caf::behavior make_behavior() override {
    result_.set_value(session_.run(fetch_));
    return {};
  }

 private:
  Session& session_;
  const Output fetch_;
  std::promise<RunResult>& result_;
};

TEST_CASE("an actor may not wait for a step, which may need its thread, unless it has one of its own") {
  const auto check = [](Engine& engine) {
    Graph graph(engine.ops());
    const Output y = Scope(graph).op("Neg", {Scope(graph).constant(1.0f)});
    Session session(engine, graph);
    std::promise<RunResult> waited, detached;
    actor_system(engine).spawn<Waiting>(std::ref(session), y, std::ref(waited));
    refused(waited.get_future().get(), Code::kFailedPrecondition, "an actor, on a thread of the engine's actor system");
    actor_system(engine).spawn<Waiting, caf::detached>(std::ref(session), y, std::ref(detached));
    CHECK(detached.get_future().get().ok());
    CHECK(session.run(y).ok());
  };
  const TestEngine own;
  check(*own.engine);
  caf::actor_system_config config;
  caf::actor_system system(config);
  check(*create_engine(system, {.cpu_threads = {1}, .op_library = testing::op_library()}).value());
}

/// Owns a session, begins steps and ends.
class Owner : public caf::event_based_actor {
 public:
  Owner(caf::actor_config& config, std::unique_ptr<Session> session, Output fetch, std::latch& answers,
        std::promise<void>& gone)
      : caf::event_based_actor(config), session_(std::move(session)), fetch_(fetch), answers_(answers), gone_(gone) {}
  caf::behavior make_behavior() override {
    return {[this](int steps) {
      for (int i = 0; i < steps; ++i)
        session_->run_async({}, {fetch_}, {}, [&answers = answers_](const RunResult&) { answers.count_down(); });
      session_.reset();
      gone_.set_value();
      quit();
    }};
  }

 private:
  std::unique_ptr<Session> session_;
  const Output fetch_;
  std::latch& answers_;
  std::promise<void>& gone_;
};

TEST_CASE("an actor destroys its session amid steps, also where its thread is the only one") {
  const auto threads = static_cast<size_t>(GENERATE(1, 2));
  caf::actor_system_config config;
  config.set("scheduler.max-threads", threads);
  caf::actor_system system(config);
  auto engine = create_engine(system, {.cpu_threads = {1, 1}}).value();
  Graph graph(engine->ops());
  const Scope scope(graph);
  const Output x = scope.device("/cpu:0").constant(1.f), y = scope.device("/cpu:1").op("Neg", {x});
  constexpr int kSteps = 20;
  std::latch answers(kSteps);
  std::promise<void> gone;
  const caf::actor owner =
      system.spawn<Owner>(std::make_unique<Session>(*engine, graph), y, std::ref(answers), std::ref(gone));
  caf::anon_send(owner, kSteps);
  REQUIRE(gone.get_future().wait_for(std::chrono::minutes(1)) == std::future_status::ready);
  answers.wait();
}

TEST_CASE("a step that does not end leaves the only thread of a system to others, and to its deadline") {
  const bool simulated = GENERATE(false, true);
  caf::actor_system_config config;
  config.set("scheduler.max-threads", size_t{1});
  caf::actor_system system(config);
  EngineOptions options{.cpu_threads = {1, 1}, .op_library = testing::op_library()};
  if (simulated) options.sim = {.devices = {kRates}, .compute = true};
  auto engine = create_engine(system, std::move(options));
  REQUIRE(engine.ok());
  Graph graph((*engine)->ops());
  const Scope scope(graph), there = scope.device(simulated ? "/device:sim:0" : "/cpu:0");
  const Output x = scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape::scalar()}});
  const Output endless = while_loop(
      there, {x}, [](const Scope& s, const Outputs&) { return s.constant(Tensor::scalar(true)); },
      [](const Scope& s, const Outputs& v) { return Outputs{s.op("Neg", {v[0]})}; })[0];
  const Output other = scope.device("/cpu:1").op("Exp", {x});
  REQUIRE(scope.ok());
  Session session(**engine, graph);
  CancelToken cancel;
  RunOptions until_then;
  until_then.cancel = cancel;
  auto first = session.run_future({{x, f(1)}}, endless, {}, until_then);
  auto beside = session.run_future({{x, f(0)}}, other);
  auto late = session.run_future({{x, f(1)}}, endless, {}, {.deadline = std::chrono::milliseconds(20)});
  CHECK(beside.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  CHECK(late.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  cancel.cancel();
  refused(first.get(), Code::kCancelled);
  CHECK(beside.get().ok());
  refused(late.get(), Code::kDeadlineExceeded);
}

TEST_CASE("a step that cannot start is answered too") {
  TestEngine t;
  const Output x = t.placeholder(DType::kInt32, {});
  auto prepared = t.session->prepare({x}, {x});
  REQUIRE(prepared.ok());
  caf::scoped_actor self(actor_system(*t.engine));
  run_step(*t.session, *prepared, {Tensor::scalar(1.f)}, caf::actor_cast<caf::actor>(self), 5);
  self->receive([&](const StepDone& done) {
    CHECK(done.tag == 5);
    REQUIRE_FALSE(done.result->ok());
    CHECK(done.result->error().code == Code::kInvalidArgument);
  });
}

}  // namespace
}  // namespace troupe
