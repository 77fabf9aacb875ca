// SPDX-License-Identifier: Apache-2.0
// No lock is held while a user's function runs: priorities, kernels and their factories, shape functions and factories
// of resources may ask engine, session and graph for what does not wait.
#include <atomic>
#include <functional>
#include <future>
#include <latch>
#include <optional>
#include <thread>

#include "tests/engine/fixtures.h"
#include "tests/op_library.h"
#include "troupe/graph_def.h"

namespace troupe {
namespace {

/// What the functions of these tests do when they are called.
struct Hooks {
  std::function<void()> shape, kernel, compute, resource;
  std::atomic<int> uses{0};
};

void call(std::function<void()>& hook) {
  if (const auto once = std::exchange(hook, nullptr)) once();
}

class Asks final : public ComputeKernel {
 public:
  explicit Asks(std::shared_ptr<Hooks> hooks) : hooks_(std::move(hooks)) {}
  Status compute(KernelContext& c) override {
    call(hooks_->compute);
    c.set_output(0, Tensor::scalar(1.f));
    return {};
  }

 private:
  const std::shared_ptr<Hooks> hooks_;
};

class Quiet final : public Resource {};

class AsksHandle final : public ComputeKernel {
 public:
  explicit AsksHandle(std::shared_ptr<Hooks> hooks) : hooks_(std::move(hooks)) {}
  Status compute(KernelContext& c) override {
    auto handle = std::make_shared<ResourceHandle>();
    handle->type = "quiet";
    handle->factory = [hooks = hooks_]() -> Result<std::unique_ptr<Resource>> {
      call(hooks->resource);
      return std::unique_ptr<Resource>(new Quiet());
    };
    c.set_output(0, Tensor::scalar<ResourceRef>(std::move(handle)));
    return {};
  }

 private:
  const std::shared_ptr<Hooks> hooks_;
};

class UsesQuiet final : public ResourceKernel {
 public:
  explicit UsesQuiet(std::shared_ptr<Hooks> hooks) : hooks_(std::move(hooks)) {}
  void execute(Resource&, ResourceRequest request) override {
    ++hooks_->uses;
    request.reply(std::vector<Tensor>{Tensor::scalar(1.f)});
  }

 private:
  const std::shared_ptr<Hooks> hooks_;
};

struct Reentry {
  explicit Reentry(SessionOptions options = {}) {
    const auto register_ops = [hooks = hooks](OpRegistry& ops, KernelRegistry& kernels) {
      const auto none = not_differentiable("a test's");
      const auto shape = [hooks](ShapeContext& c) {
        call(hooks->shape);
        return scalar_shape(c);
      };
      ops.add(OpDef("Asks").input("x: float32").output("y: float32").doc("A test's.").shape(shape), none);
      kernels.add("Asks", DeviceKind::kCpu, {}, [hooks](const KernelInit&) -> Result<std::unique_ptr<Kernel>> {
        call(hooks->kernel);
        return std::unique_ptr<Kernel>(new Asks(hooks));
      });
      ops.add(OpDef("Quiet").output("y: resource").doc("A test's.").shape(scalar_shape).stateful(), none);
      kernels.add("Quiet", DeviceKind::kCpu, {}, [hooks](const KernelInit&) -> Result<std::unique_ptr<Kernel>> {
        return std::unique_ptr<Kernel>(new AsksHandle(hooks));
      });
      ops.add(
          OpDef("UsesQuiet").input("r: resource").output("y: float32").doc("A test's.").shape(scalar_shape).stateful(),
          none);
      kernels.add("UsesQuiet", DeviceKind::kCpu, {}, [hooks](const KernelInit&) -> Result<std::unique_ptr<Kernel>> {
        return std::unique_ptr<Kernel>(new UsesQuiet(hooks));
      });
    };
    engine =
        *Engine::create({.cpu_threads = {1, 1}, .op_library = testing::op_library(), .register_ops = register_ops});
    graph.emplace(engine->ops());
    scope.emplace(*graph);
    other = scope->named("other").op("Neg", {scope->op("Placeholder", {}, {{"dtype", DType::kFloat32}})});
    session = std::make_unique<Session>(*engine, *graph, std::move(options));
  }
  /// Asks for all that does not wait and takes a lock.
  void ask() {
    {
      const std::lock_guard lock(graph->mutex());
      found += graph->find("other") != nullptr;
    }
    found += graph->status().ok() && !graph->dot().empty() && !to_graph_def(*graph).empty();
    (void)session->costs();
    found += session->prepare({other.node->inputs()[0]}, {other}, {}).ok();
    engine->snapshot([this](Result<Snapshot>) { snapshots.count_down(); });
  }
  void check_asked() {
    CHECK(found == 3);
    snapshots.wait();
  }

  std::atomic<int> found{0};
  std::latch snapshots{1};
  std::shared_ptr<Hooks> hooks = std::make_shared<Hooks>();
  std::unique_ptr<Engine> engine;
  std::optional<Graph> graph;
  std::optional<Scope> scope;
  Output other;
  std::unique_ptr<Session> session;
};

TEST_CASE("a step that has failed asks nothing of a resource that was made after that") {
  Reentry r;
  const Output y = r.scope->op("UsesQuiet", {r.scope->op("Quiet", {})});
  CancelToken token;
  // When the node has begun to look for the resource: as where a client that is back has reset a container, while a
  // device is about to ask it for a step of that client's former life.
  r.hooks->resource = [&] { token.cancel(); };
  refused(r.session->run({y}, {.cancel = token}), Code::kCancelled, "cancelled");
  // The next step's request comes after what the first one may have asked.
  CHECK(r.session->run({y}).ok());
  CHECK(r.hooks->uses == 1);
}

TEST_CASE("a priority function may use the session that asks it") {
  std::function<void()> hook;
  Reentry r({.priority = [&](const Node&) {
    call(hook);
    return 1;
  }});
  hook = [&] { r.ask(); };
  const Output y = r.scope->op("Asks", {r.other.node->inputs()[0]});
  const std::vector<Feed> feeds = {{r.other.node->inputs()[0], f(1)}};
  REQUIRE(r.session->run(feeds, {y}).ok());
  r.check_asked();
  hook = [&] { (void)r.session->costs(); };  // as it plans without passes
  CHECK(r.session->run(feeds, {y}, {}, {.check_numerics = true}).ok());
  CHECK_FALSE(hook);
}

TEST_CASE("a kernel's factory, and a kernel that is called while a plan is made, may use the session") {
  for (const bool factory : {true, false}) {
    Reentry r;
    std::optional<std::thread::id> asked_by;
    (factory ? r.hooks->kernel : r.hooks->compute) = [&] {
      asked_by = std::this_thread::get_id();
      r.ask();
    };
    REQUIRE(r.session->run({r.scope->op("Asks", {r.scope->constant(1.f)})}).ok());
    CHECK(asked_by == std::this_thread::get_id());
    r.check_asked();
  }
}

TEST_CASE("a shape function may use the session of its graph") {
  Reentry r;
  r.hooks->shape = [&] { r.ask(); };
  REQUIRE(r.scope->op("Asks", {r.scope->constant(1.f)}));
  r.check_asked();
}

TEST_CASE("a resource's factory may ask the engine and the session for what does not wait") {
  Reentry r;
  std::promise<RunResult> inner;
  r.hooks->resource = [&] {
    r.ask();
    const Output x = r.other.node->inputs()[0];
    r.session->run_async({{x, f(2)}}, {r.other}, {}, [&](RunResult result) { inner.set_value(std::move(result)); });
  };
  const Output y = r.scope->op("UsesQuiet", {r.scope->op("Quiet", {})});
  CHECK(number((*r.session->run({y}))[0]) == 1);
  CHECK(number((*inner.get_future().get())[0]) == -2);
  r.check_asked();
}

TEST_CASE("a priority function that asks for the plan that is made is told so") {
  Status inside;
  std::function<void()> hook;
  Reentry r({.priority = [&](const Node&) {
    call(hook);
    return 0;
  }});
  const Output y = r.scope->op("Asks", {r.other.node->inputs()[0]});
  hook = [&] { inside = r.session->prepare({r.other.node->inputs()[0]}, {y}, {}).status(); };
  REQUIRE(r.session->run({{r.other.node->inputs()[0], f(1)}}, {y}).ok());
  REQUIRE_FALSE(inside.ok());
  CHECK(inside.error().code == Code::kFailedPrecondition);
  CHECK_THAT(inside.error().message, Catch::Contains("must not run what the plan is made for"));
}

TEST_CASE("two threads that plan one signature at once agree on one plan and its kernels") {
  std::latch both(2);
  std::atomic<int> late{0};
  Reentry r({.priority = [&](const Node&) {
    static thread_local bool met = false;
    if (!std::exchange(met, true)) both.arrive_and_wait();
    return 0;
  }});
  const Output x = r.other.node->inputs()[0], y = r.scope->op("Asks", {x});
  const auto prepare = [&] {
    auto prepared = r.session->prepare({x}, {y}, {});
    late += !prepared.ok();
    return prepared;
  };
  auto first = std::async(std::launch::async, prepare), second = std::async(std::launch::async, prepare);
  const auto one = first.get(), other = second.get();
  REQUIRE(late == 0);
  CHECK(*one == *other);
  CHECK(*r.session->prepare({x}, {y}, {}) == *one);
  CHECK(number((*r.session->run(*one, {f(3)}))[0]) == 1);
}

}  // namespace
}  // namespace troupe
