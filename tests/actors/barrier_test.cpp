// SPDX-License-Identifier: Apache-2.0
// What users' code may do to an engine: throw anywhere, give other outputs than it declared, answer twice, late, never
// or from another thread. The step or call gets an error, and everything else goes on. Actors that die end their steps.
#include <caf/all.hpp>

#include <future>
#include <thread>

#include "actors/engine_impl.h"
#include "tests/engine/fixtures.h"
#include "tests/repeats.h"
#include "troupe/blocking_kernel.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;

/// How a kernel of a test misbehaves, by input 0 (or 1, of a resource's).
enum Fault { kNone, kThrow, kThrowNumber, kWrongDType, kWrongShape, kUnset, kTooMany, kFaults };

Status misbehave(int fault) {
  if (fault == kThrow) throw std::runtime_error("a fault of the test's");
  if (fault == kThrowNumber) throw 7;
  return {};
}

Tensor output_of(int fault) {
  if (fault == kWrongDType) return Tensor::scalar<int32_t>(1);
  if (fault == kWrongShape) return Tensor::of<float>({1, 2});
  if (fault == kUnset) return {};
  return Tensor::scalar(1.f);
}

class Computes final : public ComputeKernel {
  Status compute(KernelContext& c) override {
    const int fault = c.input(0).data<int32_t>()[0];
    TROUPE_RETURN_IF_ERROR(misbehave(fault));
    if (fault == kTooMany) c.set_output(1, Tensor::scalar(1.f));
    if (fault != kUnset) c.set_output(0, output_of(fault));
    return {};
  }
};

class Blocks final : public BlockingKernel {
  Result<std::vector<Tensor>> run(const BlockingRequest& request) override {
    const int fault = request.inputs[0].data<int32_t>()[0];
    TROUPE_RETURN_IF_ERROR(misbehave(fault));
    return std::vector<Tensor>(fault == kTooMany ? 2 : 1, output_of(fault));
  }
};

/// A resource whose users say how it is to misbehave, and which keeps replies.
class Odd final : public Resource {
 public:
  std::vector<Reply> kept;
  void cancel(uint64_t, int64_t) override {
    if (throws_on_cancel) throw std::runtime_error("in cancel");
  }
  bool throws_on_cancel = false;
};

enum Answer { kAnswerKeep = 100, kAnswerTwice, kAnswerLater, kAnswerKept, kAnswerCancelThrows, kAnswerKeepThrows };

class Uses final : public ResourceKernel {
 public:
  explicit Uses(const KernelInit&) {}
  void execute(Resource& resource, ResourceRequest request) override {
    auto& odd = dynamic_cast<Odd&>(resource);
    const int fault = request.inputs[1].data<int32_t>()[0];
    if (fault == kAnswerKeep || fault == kAnswerCancelThrows) {
      odd.throws_on_cancel = fault == kAnswerCancelThrows;
      odd.kept.push_back(std::move(request.reply));
      return;
    }
    if (fault == kAnswerKeepThrows) {
      odd.kept.push_back(std::move(request.reply));
      throw std::runtime_error("after it kept the reply");
    }
    if (fault == kAnswerTwice) {
      request.reply(std::vector<Tensor>{Tensor::scalar(1.f)});
      request.reply(std::vector<Tensor>{Tensor::scalar(2.f)});
      throw std::runtime_error("after its answer");
    }
    if (fault == kAnswerLater) {
      std::thread([reply = std::move(request.reply)]() mutable {
        reply(std::vector<Tensor>{Tensor::scalar(3.f)});
      }).detach();
      return;
    }
    if (fault == kAnswerKept) {
      for (Reply& reply : odd.kept) reply(std::vector<Tensor>{Tensor::scalar(4.f)});
      odd.kept.clear();
      return request.reply(std::vector<Tensor>{Tensor::scalar(1.f)});
    }
    (void)misbehave(fault).ok();
    request.reply(std::vector<Tensor>(fault == kTooMany ? 2 : 1, output_of(fault)));
  }
};

class Handle final : public ComputeKernel {
  Status compute(KernelContext& c) override {
    auto handle = std::make_shared<ResourceHandle>();
    handle->type = "odd";
    handle->name = "odd";
    handle->factory = []() -> Result<std::unique_ptr<Resource>> { return std::unique_ptr<Resource>(new Odd()); };
    c.set_output(0, Tensor::scalar<ResourceRef>(std::move(handle)));
    return {};
  }
};

void register_odd(OpRegistry& ops, KernelRegistry& kernels) {
  const auto scalar = [](ShapeContext& c) -> Status {
    for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, PartialShape::scalar());
    return {};
  };
  const auto none = not_differentiable("a test's");
  ops.add(OpDef("Computes").input("x: int32").output("y: float32").doc("A test's.").shape(scalar).stateful(), none);
  kernels.add<Computes>("Computes", DeviceKind::kCpu, {});
  ops.add(OpDef("Blocks").input("x: int32").output("y: float32").doc("A test's.").shape(scalar).stateful(), none);
  kernels.add<Blocks>("Blocks", DeviceKind::kCpu, {});
  ops.add(OpDef("Odd").output("y: resource").doc("A test's.").shape(scalar).stateful(), none);
  kernels.add<Handle>("Odd", DeviceKind::kCpu, {});
  ops.add(OpDef("Uses")
              .input("r: resource")
              .input("x: int32")
              .output("y: float32")
              .doc("A test's.")
              .shape(scalar)
              .stateful(),
          none);
  kernels.add<Uses>("Uses", DeviceKind::kCpu, {});
  ops.add(OpDef("BadShape").input("x: int32").output("y: float32").doc("A test's.").shape([](ShapeContext&) -> Status {
    throw std::runtime_error("in a shape function");
  }),
          none);
  ops.add(OpDef("BadFactory").output("y: float32").doc("A test's.").shape(scalar).stateful(), none);
  kernels.add("BadFactory", DeviceKind::kCpu, {},
              [](const KernelInit&) -> Result<std::unique_ptr<Kernel>> { throw std::runtime_error("in a factory"); });
}

struct OddEngine {
  OddEngine() {
    auto made = Engine::create({.cpu_threads = {1, 1}, .register_ops = register_odd});
    REQUIRE(made.ok());
    engine = std::move(*made);
    graph.emplace(engine->ops());
    scope.emplace(*graph);
    x = scope->op("Placeholder", {}, {{"dtype", DType::kInt32}, {"shape", PartialShape::scalar()}});
    session = std::make_unique<Session>(*engine, *graph);
  }
  RunResult run(Output fetch, int value, RunOptions options = {}) {
    return session->run({{x, Tensor::scalar<int32_t>(value)}}, {fetch}, {}, options);
  }
  std::unique_ptr<Engine> engine;
  std::optional<Graph> graph;
  std::optional<Scope> scope;
  Output x;
  std::unique_ptr<Session> session;
};

TEST_CASE("kernels of every kind may throw and break their promises") {
  OddEngine f;
  const Output handle = f.scope->op("Odd", {});
  for (const Output& y : {f.scope->named("node").op("Computes", {f.x}), f.scope->named("node").op("Blocks", {f.x}),
                          f.scope->named("node").op("Uses", {handle, f.x})}) {
    REQUIRE(f.scope->ok());
    for (int round = 0; round < 3; ++round)
      for (int fault = kNone; fault < kFaults; ++fault) {
        const RunResult r = f.run(y, fault);
        INFO(y.node->op().name() << " " << fault);
        REQUIRE(r.ok() == (fault == kNone));
        if (r.ok()) continue;
        INFO(r.error().str());
        CHECK(r.error().code == Code::kInternal);
        CHECK(r.error().node == y.node->name());
        CHECK(r.error().op == y.node->op().name());
        CHECK(r.error().step.has_value());
        if (fault == kThrow) CHECK_THAT(r.error().message, Catch::Contains("a fault of the test's"));
      }
  }
}

TEST_CASE("shape functions, factories, priorities and registration may throw") {
  OddEngine f;
  const Output bad = f.scope->op("BadFactory", {});
  const RunResult r = f.run(bad, 0);
  REQUIRE_FALSE(r.ok());
  CHECK_THAT(r.error().str(), Catch::Contains("in a factory"));
  SessionOptions options;
  options.priority = [](const Node&) -> int { throw std::runtime_error("in a priority"); };
  Session session(*f.engine, *f.graph, options);
  const RunResult no_plan = session.run({{f.x, Tensor::scalar<int32_t>(0)}}, {f.scope->op("Computes", {f.x})});
  REQUIRE_FALSE(no_plan.ok());
  CHECK_THAT(no_plan.error().message, Catch::Contains("in a priority"));
  CHECK_FALSE(f.scope->op("BadShape", {f.x}));
  CHECK_THAT(f.scope->status().error().message, Catch::Contains("in a shape function"));
  auto engine =
      Engine::create({.register_ops = [](OpRegistry&, KernelRegistry&) { throw std::runtime_error("early"); }});
  REQUIRE_FALSE(engine.ok());
  CHECK_THAT(engine.error().message, Catch::Contains("early"));
}

TEST_CASE("a reply that is given twice, from another thread, late, or never") {
  OddEngine f;
  const Output y = f.scope->op("Uses", {f.scope->op("Odd", {}), f.x});
  for (int round = 0; round < repeats(200); ++round) {
    const RunResult twice = f.run(y, kAnswerTwice);
    REQUIRE(twice.ok());
    CHECK((*twice)[0].data<float>()[0] == 1);
    const RunResult later = f.run(y, kAnswerLater);
    REQUIRE(later.ok());
    CHECK((*later)[0].data<float>()[0] == 3);
  }
  for (const int never : {kAnswerKeep, kAnswerCancelThrows}) {
    const RunResult r = f.run(y, never, {.deadline = 2ms});
    REQUIRE_FALSE(r.ok());
    CHECK(r.error().code == Code::kDeadlineExceeded);
  }
  const RunResult thrown = f.run(y, kAnswerKeepThrows);
  REQUIRE_FALSE(thrown.ok());
  CHECK(thrown.error().code == Code::kInternal);
  CHECK_THAT(thrown.error().message, Catch::Contains("after it kept the reply"));
  CHECK(f.run(y, kAnswerKept).ok());  // answers of steps that have ended
  CHECK(f.run(y, kNone).ok());
  auto waiting = f.session->run_future({{f.x, Tensor::scalar<int32_t>(kAnswerKeep)}}, {y});
  f.session.reset();
  f.engine.reset();
  CHECK_FALSE(waiting.get().ok());
}

TEST_CASE("replies may outlive their engine") {
  for (int round = 0; round < repeats(40); ++round) {
    OddEngine f;
    const Output y = f.scope->op("Uses", {f.scope->op("Odd", {}), f.x});
    auto later = f.session->run_future({{f.x, Tensor::scalar<int32_t>(kAnswerLater)}}, {y});
    f.session.reset();
    f.engine.reset();
    (void)later.get().ok();
  }
}

TEST_CASE("the death of a device's actor is an error of its steps at once, and of those that come") {
  OddEngine f;
  const Output queue =
      f.scope->op("FIFOQueueV2", {}, {{"component_types", std::vector{DType::kFloat32}}, {"capacity", 4}});
  const Output waits =
      f.scope->device("/cpu:1").op("QueueDequeueV2", {queue}, {{"component_types", std::vector{DType::kFloat32}}});
  auto waiting = f.session->run_future({}, {waits});
  while (f.engine->device_stats()[1].nodes == 0) std::this_thread::yield();
  caf::anon_send_exit(f.engine->impl().directory->devices[1], caf::exit_reason::kill);
  const RunResult r = waiting.get();
  REQUIRE_FALSE(r.ok());
  CHECK_THAT(r.error().message, Catch::Contains("cpu:1"));
  const RunResult next = f.session->run(std::vector<Feed>{}, {waits});
  REQUIRE_FALSE(next.ok());
  CHECK_THAT(next.error().message, Catch::Contains("cpu:1"));
  CHECK(f.run(f.scope->device("/cpu:0").op("Computes", {f.x}), kNone).ok());
}

TEST_CASE("the death of a resource's actor is an error of the steps that may wait for it") {
  OddEngine f;
  const Output queue = f.scope->op(
      "FIFOQueueV2", {},
      {{"component_types", std::vector{DType::kFloat32}}, {"capacity", 4}, {"shared_name", std::string("q")}});
  const Output waits = f.scope->op("QueueDequeueV2", {queue}, {{"component_types", std::vector{DType::kFloat32}}});
  const Node* puts = f.scope->node("QueueEnqueueV2", {queue, f.scope->constant(1.f)});
  auto waiting = f.session->run_future({}, {waits});
  Directory& directory = *f.engine->impl().directory;
  while (!directory.find("queue//q")) std::this_thread::yield();
  caf::anon_send_exit(directory.find("queue//q"), caf::exit_reason::kill);
  const RunResult r = waiting.get();
  REQUIRE_FALSE(r.ok());
  CHECK_THAT(r.error().message, Catch::Contains("has died"));
  // A new one takes its place.
  CHECK(f.session->run(std::vector<Feed>{}, std::vector<Output>{}, {puts}).ok());
  CHECK(f.session->run(std::vector<Feed>{}, {waits}).ok());
}

}  // namespace
}  // namespace troupe
