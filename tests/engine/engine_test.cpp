// SPDX-License-Identifier: Apache-2.0
// What an engine promises beside steps: its containers, which of its threads may wait for it, snapshots and restores,
// counters, the held clock.
#include "troupe/engine.h"

#include <future>
#include <latch>
#include <thread>

#include "tests/engine/fixtures.h"
#include "tests/repeats.h"
#include "troupe/blocking_kernel.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;

// -- containers -------------------------------------------------------------------------------------------------------

struct Containers : TestEngine {
  Output variable_in(const std::string& container, const std::string& name) {
    return scope.op(
        "VarHandleOp", {},
        {{"dtype", DType::kInt32}, {"shape", PartialShape::scalar()}, {"shared_name", name}, {"container", container}});
  }
  Output queue_in(const std::string& container, const std::string& name) {
    return scope.op("FIFOQueueV2", {},
                    {{"component_types", std::vector{DType::kInt32}}, {"shared_name", name}, {"container", container}});
  }
  void assign(Output handle, int value) {
    REQUIRE(session->run(scope.node("AssignVariableOp", {handle, scope.constant(value)})).ok());
  }
  RunResult read(Output handle) {
    return session->run(scope.op("ReadVariableOp", {handle}, {{"dtype", DType::kInt32}}));
  }
  int size(Output queue) { return value({}, scope.op("QueueSizeV2", {queue})).data<int32_t>()[0]; }
  void put(Output queue) { REQUIRE(session->run(scope.node("QueueEnqueueV2", {queue, scope.constant(1)})).ok()); }
};

TEST_CASE("a reset drops what is in a container, and nothing of one whose name goes on after a slash") {
  Containers t;
  const std::vector<std::string> names = {"", "a", "a/b", "a/b/c", "ab", "a\\", "/"};
  for (const std::string& dropped : names) {
    for (const std::string& name : names) {
      t.assign(t.variable_in(name, "v"), 7);
      t.put(t.queue_in(name, "q"));
    }
    t.engine->reset_container("nowhere");
    t.engine->reset_container(dropped);
    t.engine->reset_container(dropped);
    for (const std::string& name : names) {
      INFO("dropped '" << dropped << "', looked into '" << name << "'");
      CHECK(t.read(t.variable_in(name, "v")).ok() == (name != dropped));
      CHECK((t.size(t.queue_in(name, "q")) > 0) == (name != dropped));
    }
    for (const std::string& name : names) t.engine->reset_container(name);
  }
}

TEST_CASE("resources of two containers are two, wherever the slash is") {
  Containers t;
  t.put(t.queue_in("a", "b/c"));
  CHECK(t.size(t.queue_in("a/b", "c")) == 0);
  CHECK(t.size(t.queue_in("", "a/b/c")) == 0);
  CHECK(t.size(t.queue_in("a", "b/c")) == 1);
}

TEST_CASE("a reset drops the default container's datasets") {
  TestEngine t;
  const auto rows = Dataset::from_tensors({Tensor::of<int32_t>({1, 2})});
  REQUIRE(rows.ok());
  for (int i = 0; i < 3; ++i) {
    REQUIRE(t.engine->add_dataset("rows", *rows).ok());
    CHECK(t.engine->add_dataset("rows", *rows).error().code == Code::kAlreadyExists);
    t.engine->reset_container("");
    CHECK(t.engine->remove_dataset("rows").error().code == Code::kNotFound);
  }
}

// -- threads ----------------------------------------------------------------------------------------------------------

/// What a kernel is to do: the test's function.
using Look = std::function<void()>;

struct Looks : Resource {
  explicit Looks(std::shared_ptr<Look> look) : look(std::move(look)) {}
  std::shared_ptr<Look> look;
};

/// Ops that call `look`: a kernel, a blocking one and a resource's.
void register_looks(OpRegistry& ops, KernelRegistry& kernels, const std::shared_ptr<Look>& look) {
  class Computes final : public ComputeKernel {
   public:
    explicit Computes(std::shared_ptr<Look> look) : look_(std::move(look)) {}
    Status compute(KernelContext& c) override {
      (*look_)();
      c.set_output(0, Tensor::scalar(1));
      return {};
    }
    std::shared_ptr<Look> look_;
  };
  class Blocks final : public BlockingKernel {
   public:
    explicit Blocks(std::shared_ptr<Look> look) : look_(std::move(look)) {}
    Result<std::vector<Tensor>> run(const BlockingRequest&) override {
      (*look_)();
      return std::vector{Tensor::scalar(1)};
    }
    std::shared_ptr<Look> look_;
  };
  class Handle final : public ComputeKernel {
   public:
    explicit Handle(std::shared_ptr<Look> look) : look_(std::move(look)) {}
    Status compute(KernelContext& c) override {
      auto handle = std::make_shared<ResourceHandle>();
      handle->type = handle->name = "looks";
      handle->factory = [look = look_]() -> Result<std::unique_ptr<Resource>> {
        return std::unique_ptr<Resource>(new Looks(look));
      };
      c.set_output(0, Tensor::scalar<ResourceRef>(std::move(handle)));
      return {};
    }
    std::shared_ptr<Look> look_;
  };
  class Uses final : public ResourceKernel {
    void execute(Resource& resource, ResourceRequest request) override {
      (*dynamic_cast<Looks&>(resource).look)();
      request.reply(std::vector{Tensor::scalar(1)});
    }
  };
  const auto none = not_differentiable("a test's");
  const auto op = [&](const char* name, const char* output) {
    return OpDef(name).output(output).doc("A test's.").shape(scalar_shape).stateful();
  };
  ops.add(op("LookComputes", "y: int32"), none);
  ops.add(op("LookBlocks", "y: int32"), none);
  ops.add(op("LookHandle", "y: resource"), none);
  ops.add(op("LookUses", "y: int32").input("r: resource"), none);
  const auto factory = [look]<class K>(std::in_place_type_t<K>) {
    return
        [look](const KernelInit&) -> Result<std::unique_ptr<Kernel>> { return std::unique_ptr<Kernel>(new K(look)); };
  };
  kernels.add("LookComputes", DeviceKind::kCpu, {}, factory(std::in_place_type<Computes>));
  kernels.add("LookBlocks", DeviceKind::kCpu, {}, factory(std::in_place_type<Blocks>));
  kernels.add("LookHandle", DeviceKind::kCpu, {}, factory(std::in_place_type<Handle>));
  kernels.add("LookUses", DeviceKind::kCpu, {},
              [](const KernelInit&) -> Result<std::unique_ptr<Kernel>> { return std::unique_ptr<Kernel>(new Uses()); });
}

TEST_CASE("restore and restart_dataset end by their deadlines where an operation takes longer") {
  struct Gate {
    std::latch entered{1}, open{1};
  };
  const auto gate = std::make_shared<Gate>();
  class Holds final : public ResourceKernel {
   public:
    explicit Holds(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {}
    void execute(Resource&, ResourceRequest request) override {
      gate_->entered.count_down();
      gate_->open.wait();
      request.reply(std::vector<Tensor>());
    }

   private:
    const std::shared_ptr<Gate> gate_;
  };
  auto made = Engine::create(
      {.cpu_threads = {1, 1}, .register_ops = [&](OpRegistry& ops, KernelRegistry& kernels) {
         ops.add(OpDef("Holds").input("r: resource").doc("A test's.").shape(no_outputs).stateful(),
                 not_differentiable("a test's"));
         kernels.add("Holds", DeviceKind::kCpu, {}, [gate](const KernelInit&) -> Result<std::unique_ptr<Holds>> {
           return std::make_unique<Holds>(gate);
         });
       }});
  REQUIRE(made.ok());
  Engine& engine = **made;
  const Snapshot values{{{"v", Tensor::scalar(1)}}};
  REQUIRE(engine.restore(values, "", std::chrono::minutes(1)).ok());
  REQUIRE(engine.add_dataset("rows", *Dataset::from_tensors({Tensor::of<int32_t>({1, 2})})).ok());
  CHECK(engine.restart_dataset("rows", std::chrono::minutes(1)).ok());
  CHECK(engine.restart_dataset("rows", std::chrono::nanoseconds::max()).ok());

  Graph graph(engine.ops());
  const Scope scope(graph);
  const auto held = [&](Output handle) {
    const Node* holds = scope.node("Holds", {handle});
    REQUIRE(scope.ok());
    return holds;
  };
  Session session(engine, graph);
  SECTION("restore") {
    const Output v = scope.op("VarHandleOp", {},
                              {{"dtype", DType::kInt32}, {"shape", PartialShape{}}, {"shared_name", std::string("v")}});
    auto step = session.run_future({}, {}, {held(v)});
    gate->entered.wait();
    const Status late = engine.restore(values, "", std::chrono::milliseconds(5));
    const Status at_once = engine.restore(values, "", std::chrono::nanoseconds(-1));
    gate->open.count_down();
    CHECK(late.error().code == Code::kDeadlineExceeded);
    CHECK_THAT(late.error().message, Catch::Contains("restore took longer than its deadline of 5000000 ns"));
    CHECK(at_once.error().code == Code::kDeadlineExceeded);
    CHECK(step.get().ok());
  }
  SECTION("restart_dataset") {
    const Output rows = scope.op("IteratorV2", {},
                                 {{"shared_name", std::string("rows")},
                                  {"container", std::string()},
                                  {"output_types", std::vector{DType::kInt32}},
                                  {"output_shapes", std::vector{PartialShape{}}}});
    auto step = session.run_future({}, {}, {held(rows)});
    gate->entered.wait();
    const Status late = engine.restart_dataset("rows", std::chrono::milliseconds(5));
    gate->open.count_down();
    CHECK(late.error().code == Code::kDeadlineExceeded);
    CHECK(step.get().ok());
  }
  CHECK(engine.restore(values).ok());
}

TEST_CASE("calls that would wait are errors in kernels and resources, and succeed in blocking kernels") {
  const auto look = std::make_shared<Look>();
  auto made = Engine::create({.cpu_threads = {1}, .register_ops = [&](OpRegistry& ops, KernelRegistry& kernels) {
                                register_looks(ops, kernels, look);
                              }});
  REQUIRE(made.ok());
  Engine& engine = **made;
  Graph graph(engine.ops());
  const Scope scope(graph);
  const Output one = scope.constant(1);
  Session session(engine, graph);
  const auto rows = Dataset::from_tensors({Tensor::of<int32_t>({1, 2})});
  REQUIRE(rows.ok());
  REQUIRE(engine.add_dataset("rows", *rows).ok());
  std::vector<Status> statuses;
  bool own = false;
  *look = [&] {
    own = engine.on_engine_thread();
    statuses = {session.run(one).status(), engine.restore({{{"v", Tensor::scalar(1)}}}), engine.restart_dataset("rows"),
                engine.snapshot().get().status(), engine.may_wait("this")};
  };
  const Output handle = scope.op("LookHandle", {});
  for (const auto& [fetch, waits] :
       {std::pair(scope.op("LookComputes", {}), false), std::pair(scope.op("LookUses", {handle}), false),
        std::pair(scope.op("LookBlocks", {}), true)}) {
    auto done = session.run_future({}, fetch);
    REQUIRE(done.wait_for(60s) == std::future_status::ready);
    REQUIRE(done.get().ok());
    INFO(fetch.name());
    CHECK(own == !waits);
    for (const Status& status : statuses) {
      CHECK(status.ok() == waits);
      if (!status.ok()) CHECK(status.error().code == Code::kFailedPrecondition);
    }
  }
}

TEST_CASE("a thread of one engine may wait for another") {
  TestEngine one, two;
  const Output x = one.scope.constant(1), y = two.scope.constant(2);
  std::promise<std::pair<bool, bool>> seen;
  one.session->run_async({}, x, {}, [&](RunResult) {
    seen.set_value({two.session->run(y).ok(), two.engine->on_engine_thread() || !one.engine->on_engine_thread()});
  });
  auto got = seen.get_future();
  REQUIRE(got.wait_for(60s) == std::future_status::ready);
  CHECK(got.get() == std::pair(true, false));
}

TEST_CASE("the error of a call that would wait says which call, and what to call instead") {
  TestEngine t;
  CHECK(t.engine->may_wait("Thing::wait").ok());
  std::promise<Status> refused;
  t.session->run_async({}, {}, {}, [&](RunResult) { refused.set_value(t.engine->may_wait("Thing::wait", "other()")); });
  const Status status = refused.get_future().get();
  REQUIRE_FALSE(status.ok());
  CHECK_THAT(status.error().message, Catch::Contains("Thing::wait") && Catch::Contains("call other()"));
}

// -- snapshots --------------------------------------------------------------------------------------------------------

TEST_CASE("a restore that names one variable wrongly changes none, and says which") {
  Containers t;
  const Output a = t.variable_in("", "a"), b = t.variable_in("", "b");
  t.assign(a, 1);
  t.assign(b, 2);
  const auto restore = [&](Tensor of_b) {
    return t.engine->restore({{{"a", Tensor::scalar(5)}, {"b", std::move(of_b)}, {"c", Tensor::scalar(6)}}});
  };
  for (const Tensor& bad : {Tensor::scalar(1.f), Tensor::of<int32_t>({1, 2}), Tensor()}) {
    const Status refused = restore(bad);
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().code == Code::kInvalidArgument);
    CHECK_THAT(refused.error().message, Catch::Contains("'b'"));
    CHECK((*t.read(a))[0].identical(Tensor::scalar(1)));
    CHECK(t.read(t.variable_in("", "c")).error().code == Code::kFailedPrecondition);
  }
  CHECK(t.engine->restore({}).ok());
  REQUIRE(restore(Tensor::scalar(8)).ok());
  CHECK((*t.read(b))[0].identical(Tensor::scalar(8)));
  CHECK((*t.read(t.variable_in("", "c")))[0].identical(Tensor::scalar(6)));
}

TEST_CASE("a snapshot is of its container alone, and of an empty one it is empty") {
  Containers t;
  t.assign(t.variable_in("", "v"), 1);
  t.assign(t.variable_in("other", "w"), 2);
  const auto of = [&](const std::string& container) { return t.engine->snapshot(container).get().value().variables; };
  CHECK(of("").size() == 1);
  CHECK(of("other").at("w").identical(Tensor::scalar(2)));
  CHECK(of("nowhere").empty());
  t.engine->reset_container("other");
  CHECK(of("other").empty());
}

TEST_CASE("each snapshot's callback runs once, on a thread of the engine, while steps run and containers are reset") {
  Containers t;
  const Output v = t.variable_in("", "v");
  const Node* put = t.scope.node("AssignVariableOp", {v, t.scope.constant(1)});
  std::atomic<bool> stop{false};
  std::thread steps([&] {
    while (!stop) (void)t.session->run(put).ok();
  });
  std::thread resets([&] {
    while (!stop) {
      t.engine->reset_container("");
      std::this_thread::yield();
    }
  });
  const int count = repeats(400);
  std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
  std::atomic<int> wrong{0}, told{0};
  std::promise<void> all;
  for (auto& called : calls)
    t.engine->snapshot([&](Result<Snapshot> s) {
      ++called;
      wrong += !t.engine->on_engine_thread();
      wrong += !s.ok() && s.error().code != Code::kFailedPrecondition && s.error().code != Code::kCancelled;
      if (++told == count) all.set_value();
    });
  REQUIRE(all.get_future().wait_for(60s) == std::future_status::ready);
  stop = true;
  steps.join();
  resets.join();
  CHECK(wrong == 0);
  for (const auto& called : calls) CHECK(called == 1);
}

TEST_CASE("snapshots that an engine's end overtakes are answered") {
  for (int round = 0; round < repeats(20); ++round) {
    TestEngine t;
    std::atomic<int> told{0};
    std::vector<std::future<Result<Snapshot>>> futures;
    for (int i = 0; i < 20; ++i) {
      t.engine->snapshot([&](Result<Snapshot>) { ++told; });
      futures.push_back(t.engine->snapshot());
    }
    t.engine.reset();
    for (auto& future : futures) {
      REQUIRE(future.wait_for(60s) == std::future_status::ready);
      const auto s = future.get();
      if (!s.ok()) CHECK(s.error().code == Code::kCancelled);
    }
    CHECK(told == 20);
  }
}

// -- counters ---------------------------------------------------------------------------------------------------------

TEST_CASE("an engine counts what its devices did, and names them in full") {
  TestEngine t({2, 1});
  CHECK(t.engine->devices() == std::vector<std::string>{"/job:localhost/replica:0/task:0/device:cpu:0",
                                                        "/job:localhost/replica:0/task:0/device:cpu:1"});
  const Output x = t.placeholder(DType::kFloat32, {});
  const Output y = t.scope.op("Neg", {t.scope.op("Exp", {x})});
  for (int i = 0; i < 5; ++i) REQUIRE(t.session->run({{x, Tensor::scalar(1.f)}}, y).ok());
  auto stats = t.engine->device_stats();
  REQUIRE(stats.size() == 2);
  while (stats[0].steps < 5 || stats[0].nodes < 10) stats = t.engine->device_stats();  // the last may be counted late
  CHECK(stats[0].name == t.engine->devices()[0]);
  CHECK(stats[0].threads == 2);
  CHECK(stats[1].threads == 1);
  CHECK(stats[0].steps == 5);
  CHECK(stats[0].nodes == 10);
  CHECK(stats[0].busy_ns > 0);
  CHECK(stats[0].input_wait_ns == 0);
  CHECK(stats[1].steps == 0);
  CHECK(stats[1].nodes == 0);
  // A step that waits for a queue, until its deadline; on a busy machine that may be over before it has begun to wait.
  const Output waits = t.dequeue(t.queue("q", DType::kInt32), DType::kInt32);
  for (auto deadline = 5ms; t.engine->device_stats()[0].input_wait_ns == 0; deadline *= 2)
    (void)t.session->run(waits, {.deadline = deadline});
}

TEST_CASE("memory may be trimmed while steps run") {
  TestEngine t({1, 1});
  const Output n = t.placeholder(DType::kInt32, {1});
  const Output y = t.scope.op("Sum", {t.scope.op("Fill", {n, t.scope.constant(1.f)}), t.scope.constant(0)});
  std::atomic<bool> stop{false};
  std::thread trims([&] {
    while (!stop) t.engine->trim_memory();
  });
  bool right = true;
  for (int i = 1; i <= repeats(400) && right; ++i) {
    const RunResult r = t.session->run({{n, Tensor::of<int32_t>({i})}}, y);
    right = r.ok() && (*r)[0].identical(Tensor::scalar(static_cast<float>(i)));
  }
  stop = true;
  trims.join();
  CHECK(right);
}

// -- the held clock ---------------------------------------------------------------------------------------------------

struct SimulatedDevice {
  SimulatedDevice()
      : engine(Engine::create({.cpu_threads = {1}, .sim = {.devices = std::vector(2, DeviceRates{})}}).value()) {}
  std::unique_ptr<Engine> engine;
  Graph graph{engine->ops()};
  const Scope scope{graph};
  const Output x = scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{}}});
  const Output y = scope.device("/sim:1").op("Neg", {scope.device("/sim:0").op("Exp", {x})});
  std::unique_ptr<Session> session =
      std::make_unique<Session>(*engine, graph, SessionOptions{.default_device = "/sim:0"});
  std::future<RunResult> start() { return session->run_future({{x, Tensor::scalar(0.f)}}, y); }
};

TEST_CASE("the clock stands still until the last copy of every hold has gone") {
  SimulatedDevice t;
  REQUIRE(t.engine->hold_sim());
  REQUIRE(t.start().get().ok());
  const int64_t before = t.engine->sim_now_ns();
  CHECK(before > 0);
  auto first = t.engine->hold_sim(), copy = first, second = t.engine->hold_sim();
  auto run = t.start();
  first.reset();
  second.reset();
  // The devices are told of this step after both holds went; nothing passes but what `copy` lets.
  auto refused = t.session->run_future({{t.x, Tensor::scalar(0.f)}}, t.y, {}, {.deadline = 5ms});
  CHECK(refused.get().error().code == Code::kDeadlineExceeded);
  CHECK(t.engine->sim_now_ns() == before);
  copy.reset();
  REQUIRE(run.wait_for(60s) == std::future_status::ready);
  CHECK(run.get().ok());
  CHECK(t.engine->sim_now_ns() > before);
}

TEST_CASE("a session and an engine end while the clock is held, and the hold outlives both") {
  SimulatedDevice t;
  auto hold = t.engine->hold_sim();
  auto run = t.start();
  t.session.reset();
  CHECK(run.get().error().code == Code::kCancelled);
  t.session = std::make_unique<Session>(*t.engine, t.graph, SessionOptions{.default_device = "/sim:0"});
  auto again = t.start();
  t.engine.reset();
  CHECK(again.get().error().code == Code::kCancelled);
  hold.reset();
}

TEST_CASE("holds come and go on many threads while steps run") {
  SimulatedDevice t;
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (int k = 0; k < 4; ++k)
    threads.emplace_back([&, k] {
      for (int i = 0; i < repeats(100); ++i) {
        auto hold = t.engine->hold_sim();
        auto run = t.start();
        if (k % 2) std::this_thread::yield();
        hold.reset();
        failed += !run.get().ok();
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(failed == 0);
}

}  // namespace
}  // namespace troupe
