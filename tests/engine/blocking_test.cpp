// SPDX-License-Identifier: Apache-2.0
// Kernels that read and write files. That they hold up nobody: waiting_sources_test.cpp.
#include <condition_variable>
#include <future>
#include <mutex>

#include "tests/engine/fixtures.h"
#include "tests/io/temporary_directory.h"
#include "troupe/blocking_kernel.h"

namespace troupe {
namespace {

TEST_CASE("an error of a kernel that may wait names its node, op and file") {
  const TemporaryDirectory d;
  TestEngine t({1});
  const Output names = t.scope.constant(Tensor::of<std::string>({"w"}, {1}));
  const Output whole = t.scope.constant(Tensor::of<std::string>({""}, {1}));
  const Output path = t.scope.constant(Tensor::scalar(d.file("missing")));
  const Output load =
      t.scope.named("load").op("RestoreV2", {path, names, whole}, {{"dtypes", std::vector<DType>{DType::kFloat32}}});
  const auto read = t.session->run(std::vector<Feed>{}, {load});
  REQUIRE_FALSE(read.ok());
  CHECK(read.error().node == "load");
  CHECK(read.error().op == "RestoreV2");
  CHECK_THAT(read.error().message, Catch::Contains(d.file("missing")));
}

TEST_CASE("variables are saved by one step and restored by another") {
  const TemporaryDirectory directory;
  TestEngine t({1, 1});
  const Output path = t.scope.constant(Tensor::scalar(directory.file("model.safetensors")));
  const Output w = t.variable("w", DType::kFloat32, {2});
  const Output names = t.scope.constant(Tensor::of<std::string>({"w"}, {1}));
  const Output whole = t.scope.constant(Tensor::of<std::string>({""}, {1}));
  const Tensor value = Tensor::of<float>({1, 2});
  REQUIRE(
      t.session->run(std::vector<Feed>{}, {}, {t.scope.node("AssignVariableOp", {w, t.scope.constant(value)})}).ok());
  const Output read = t.scope.op("ReadVariableOp", {w}, {{"dtype", DType::kFloat32}});
  const Scope there = t.scope.device("/cpu:1");
  REQUIRE(t.session->run(std::vector<Feed>{}, {}, {there.node("SaveV2", {path, names, whole, read})}).ok());
  const auto back = t.session->run(
      std::vector<Feed>{},
      {t.scope.op("RestoreV2", {path, names, whole}, {{"dtypes", std::vector<DType>{DType::kFloat32}}})});
  REQUIRE(back.ok());
  CHECK((*back)[0].identical(value));
}

/// Lets callers in and keeps them until it opens.
class Room {
 public:
  void enter() {
    std::unique_lock lock(mutex_);
    ++inside_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  /// Whether that many were inside at once, before a minute was over.
  bool wait_for(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return inside_ == count; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  int inside() {
    const std::lock_guard lock(mutex_);
    return inside_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int inside_ = 0;
  bool open_ = false;
};

TEST_CASE("256 blocking kernels of one node run at once, and one more when one of them ends") {
  constexpr int kMost = 256;
  const auto room = std::make_shared<Room>();
  struct Enter final : BlockingKernel {
    explicit Enter(std::shared_ptr<Room> room) : room(std::move(room)) {}
    Result<std::vector<Tensor>> run(const BlockingRequest& request) override {
      room->enter();
      return request.inputs;
    }
    const std::shared_ptr<Room> room;
  };
  auto engine = Engine::create({.register_ops = [room](OpRegistry& ops, KernelRegistry& kernels) {
    ops.add(OpDef("Enter256").input("x: int32").output("y: int32").doc("x.").stateful().shape(unchanged_shape),
            not_differentiable("a test"));
    kernels.add("Enter256", DeviceKind::kCpu, {}, [room](const KernelInit&) -> Result<std::unique_ptr<Kernel>> {
      return std::unique_ptr<Kernel>(std::make_unique<Enter>(room));
    });
  }});
  REQUIRE(engine.ok());
  Graph graph((*engine)->ops());
  const Scope scope(graph);
  const Output x = scope.op("Placeholder", {}, {{"dtype", DType::kInt32}, {"shape", PartialShape::scalar()}});
  const Output y = scope.op("Enter256", {x});
  Session session(**engine, graph);
  std::vector<std::future<RunResult>> steps;
  for (int i = 0; i <= kMost; ++i) steps.push_back(session.run_future({{x, Tensor::scalar(i)}}, {y}));
  CHECK(room->wait_for(kMost));
  // The device goes on meanwhile, and the last one is not let in.
  CHECK(session.run({{x, Tensor::scalar(7)}}, {scope.op("Neg", {x})}).ok());
  CHECK(room->inside() == kMost);
  room->open();
  for (int i = 0; i <= kMost; ++i) {
    REQUIRE(steps[static_cast<size_t>(i)].wait_for(std::chrono::seconds(60)) == std::future_status::ready);
    const RunResult result = steps[static_cast<size_t>(i)].get();
    REQUIRE(result.ok());
    CHECK((*result)[0].identical(Tensor::scalar(i)));
  }
  CHECK(room->inside() == kMost + 1);
}

TEST_CASE("256 blocking kernels that wait for steps do not keep these from their threads") {
  constexpr int kMost = 256;
  const auto room = std::make_shared<Room>();
  const auto ask = std::make_shared<std::function<RunResult()>>();
  struct Ask final : BlockingKernel {
    Ask(std::shared_ptr<Room> room, std::shared_ptr<std::function<RunResult()>> ask)
        : room(std::move(room)), ask(std::move(ask)) {}
    Result<std::vector<Tensor>> run(const BlockingRequest&) override {
      room->enter();
      return (*ask)();
    }
    const std::shared_ptr<Room> room;
    const std::shared_ptr<std::function<RunResult()>> ask;
  };
  struct Pass final : BlockingKernel {
    Result<std::vector<Tensor>> run(const BlockingRequest& request) override { return request.inputs; }
  };
  auto engine = Engine::create({.register_ops = [&](OpRegistry& ops, KernelRegistry& kernels) {
    for (const char* name : {"AskAnother", "PassOn"})
      ops.add(OpDef(name).input("x: int32").output("y: int32").doc("x.").stateful().shape(unchanged_shape),
              not_differentiable("a test"));
    kernels.add<Pass>("PassOn", DeviceKind::kCpu, {});
    kernels.add("AskAnother", DeviceKind::kCpu, {}, [=](const KernelInit&) -> Result<std::unique_ptr<Kernel>> {
      return std::unique_ptr<Kernel>(std::make_unique<Ask>(room, ask));
    });
  }});
  REQUIRE(engine.ok());
  Graph graph((*engine)->ops());
  const Scope scope(graph);
  const Output x = scope.constant(Tensor::scalar(7));
  const Output inner = scope.op("PassOn", {x}), outer = scope.op("AskAnother", {x});
  Session session(**engine, graph);
  *ask = [&] { return session.run({inner}); };
  std::vector<std::future<RunResult>> steps;
  for (int i = 0; i < kMost; ++i) steps.push_back(session.run_future({}, {outer}));
  REQUIRE(room->wait_for(kMost));
  room->open();
  for (auto& step : steps) {
    REQUIRE(step.wait_for(std::chrono::seconds(60)) == std::future_status::ready);
    const RunResult result = step.get();
    REQUIRE(result.ok());
    CHECK((*result)[0].identical(Tensor::scalar(7)));
  }
}

}  // namespace
}  // namespace troupe
