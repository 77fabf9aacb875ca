// SPDX-License-Identifier: Apache-2.0
// Worker: what a client says in its next life, while a step of the one before has not ended.
#include "actors/worker.h"

#include <future>

#include "actors/engine_impl.h"
#include "tests/engine/fixtures.h"

using namespace troupe;

namespace {

constexpr uint64_t kClient = 7, kNext = 8;

/// Holds up its thread from when it is told to until it may go on.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    here_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void await() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return here_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool here_ = false, open_ = false;
};
Gate* gate = nullptr;  // of the kernel

struct Holds final : ComputeKernel {
  Status compute(KernelContext& c) override {
    gate->pass();
    c.set_output(0, Tensor::scalar<int32_t>(0));
    return {};
  }
};

/// A task's worker, told by hand; a step of its client's holds up the first device when that goes.
struct Left {
  Left() {
    gate = &own;
    EngineOptions options;
    options.cpu_threads = {1, 1};
    options.register_ops = [](OpRegistry& ops, KernelRegistry& kernels) {
      ops.add(OpDef("Holds").output("y: int32").doc("A test's.").shape(scalar_shape).stateful(),
              not_differentiable("a test's"));
      kernels.add<Holds>("Holds", DeviceKind::kCpu, {});
    };
    impl = *Engine::Impl::make(options, nullptr, "/job:worker/replica:0/task:0");
    impl->connect([](const std::string&, EdgeValue) { return false; });
    add(kClient, 1, [](const Scope& scope) { return scope.device("/cpu:0").op("Holds", {}); });
    before = run(kClient, 1, 0);
    own.await();
    worker().drop_client(kClient, make_error(Code::kUnavailable, "the client has gone"));
  }
  ~Left() {
    own.open();
    impl->shut_down();
  }
  Worker& worker() { return *impl->worker; }
  void end_old_step() {
    own.open();
    CHECK_FALSE(before.get().ok());
  }
  void add(uint64_t client, uint64_t number, const std::function<Output(const Scope&)>& build,
           std::map<uint32_t, std::string> receives = {}) {
    worker().add_program(client, number, 1, [=, this]() -> Result<Worker::Program> {
      auto graph = std::make_shared<Graph>(impl->ops);
      Worker::Program program;
      program.graph = graph;
      program.fetches = {build(Scope(*graph))};
      program.receives = receives;
      return program;
    });
  }
  void add_seven(uint64_t client) {
    add(client, 1, [](const Scope& scope) { return scope.device("/cpu:1").constant(7); });
  }
  std::future<Result<std::vector<Tensor>>> run(uint64_t client, uint64_t number, int64_t step) {
    auto promise = std::make_shared<std::promise<Result<std::vector<Tensor>>>>();
    auto future = promise->get_future();
    PartRun run;
    run.program = number;
    run.step = step;
    run.done = [promise](PartEnd end) { promise->set_value(std::move(end.result)); };
    worker().run(client, std::move(run));
    return future;
  }

  Gate own;
  std::shared_ptr<Engine::Impl> impl;
  std::future<Result<std::vector<Tensor>>> before;
};

void check_seven(std::future<Result<std::vector<Tensor>>> step) {
  const auto result = step.get();
  INFO((result.ok() ? "" : result.error().str()));
  REQUIRE(result.ok());
  CHECK(result->at(0).identical(Tensor::scalar<int32_t>(7)));
}

/// A program whose fetch comes from another task.
Output received(const Scope& scope) {
  return scope.device("/cpu:1").op("_Recv", {}, {{"edge", int64_t{3}}, {"tensor_type", DType::kInt32}});
}

}  // namespace

TEST_CASE("a run that comes before its program waits for it, also of a client that is back before its steps ended") {
  Left t;
  auto step = t.run(kClient, 1, 1);
  t.add_seven(kClient);
  check_seven(std::move(step));
}

TEST_CASE("what a client says before its first program is kept when the last step of its former life ends") {
  Left t;
  SECTION("a run") {
    auto step = t.run(kClient, 1, 1);
    t.end_old_step();
    t.add_seven(kClient);
    check_seven(std::move(step));
  }
  SECTION("a value from another task") {
    t.worker().received({kClient, 1, 3, Tensor::scalar<int32_t>(7)});
    t.end_old_step();
    t.add(kClient, 1, received, {{3, "/job:worker/replica:0/task:1"}});
    check_seven(t.run(kClient, 1, 1));
  }
  SECTION("the end of a step") {
    t.worker().abort(kClient, 1, make_error(Code::kDeadlineExceeded, "too late"));
    t.end_old_step();
    t.add_seven(kClient);
    const auto result = t.run(kClient, 1, 1).get();
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().code == Code::kDeadlineExceeded);
  }
}

TEST_CASE("what is asked of a task that ends fails because it ends, whatever is missing by then") {
  Left t;
  t.end_old_step();
  t.impl->shut_down();
  for (const auto kind : {ContainerAsk::Kind::kSnapshot, ContainerAsk::Kind::kRestore, ContainerAsk::Kind::kRestart}) {
    std::promise<Result<ContainerAsk::Variables>> promise;
    t.worker().ask(
        kNext, {.kind = kind, .dataset = "train", .done = [&](auto result) { promise.set_value(std::move(result)); }});
    const auto result = promise.get_future().get();
    REQUIRE_FALSE(result.ok());
    CHECK(result.error().code == Code::kUnavailable);
    CHECK_THAT(result.error().str(), Catch::Contains("task:0 ends"));
  }
}

TEST_CASE("a task that ends answers its clients before its engine has ended, and so with its own end") {
  Left t;
  t.end_old_step();
  bool goes_on = false;
  t.worker().run(kNext, {.program = 1, .feeds = {}, .done = [&](const PartEnd&) { goes_on = t.impl->status().ok(); }});
  t.impl->shut_down();
  CHECK(goes_on);
}

TEST_CASE("what comes for a client after it has gone is dropped when the next one comes") {
  Left t;
  t.end_old_step();
  t.worker().received({kClient, 1, 3, Tensor::scalar<int32_t>(1)});
  t.add_seven(kNext);
  check_seven(t.run(kNext, 1, 0));
  // It would be the first one's otherwise.
  t.add(kClient, 1, received, {{3, "/job:worker/replica:0/task:1"}});
  auto step = t.run(kClient, 1, 1);
  t.worker().received({kClient, 1, 3, Tensor::scalar<int32_t>(7)});
  check_seven(std::move(step));
}

TEST_CASE("the memory that a client's steps took is given back when it has gone") {
  Left t;
  t.end_old_step();
  t.add(kNext, 1, [](const Scope& scope) {
    const Scope far = scope.device("/cpu:1");
    return far.op("Fill", {far.constant(Tensor::of<int32_t>({1 << 20})), far.constant(7)});
  });
  REQUIRE(t.run(kNext, 1, 0).get().ok());
  const Allocator& memory = *t.impl->devices[1].allocator;
  CHECK(memory.stats().cached >= 4 << 20);
  t.worker().drop_client(kNext, make_error(Code::kUnavailable, "the client has gone"));
  CHECK(memory.stats().cached == 0);
}
