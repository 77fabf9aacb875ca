// SPDX-License-Identifier: Apache-2.0
// Devices that run on and have memory of their own: where a plan copies values, what waits for the copies, how a step
// ends there, fails and is aborted.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>

#include "devices/executor.h"
#include "gpu/compute.h"
#include "plan/plan.h"
#include "tests/op_library.h"
#include "troupe/control_flow.h"
#include "troupe/scope.h"

namespace troupe::testing {
namespace {

/// Memory that says it is a GPU's.
class FarAllocator final : public Allocator {
 public:
  void* allocate(size_t bytes) override {
    ++live;
    return std::malloc(bytes + 1);
  }
  void deallocate(void* memory, size_t) noexcept override {
    --live;
    std::free(memory);
  }
  Space space() const override { return Space::kGpu; }
  AllocatorStats stats() const override { return {}; }
  void release() noexcept override {}
  int live = 0;
};

float far_scalar(const Tensor& t) { return *static_cast<const float*>(t.address()); }

/// y = x + 1 of a float scalar in far memory; NaN where x is above 1000.
class FarPlusOne final : public ComputeKernel {
  Status compute(KernelContext& c) override {
    if (c.input(0).space() != Space::kGpu) return make_error(Code::kInternal, "the input is at the host");
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kFloat32, c.input(0).shape()));
    const float x = far_scalar(c.input(0));
    *static_cast<float*>(y.mutable_address()) = x > 1000 ? NAN : x + 1;
    c.set_output(0, std::move(y));
    return {};
  }
};

/// y = x * factor, where the factor is read at the host.
class FarTimes final : public ComputeKernel {
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kFloat32, c.input(0).shape()));
    *static_cast<float*>(y.mutable_address()) = far_scalar(c.input(0)) * c.input(1).data<float>()[0];
    c.set_output(0, std::move(y));
    return {};
  }
};

/// x > y, told at the host.
class FarGreater final : public ComputeKernel {
  Status compute(KernelContext& c) override {
    c.set_output(0, Tensor::scalar(far_scalar(c.input(0)) > far_scalar(c.input(1))));
    return {};
  }
};

/// Hands its input on.
class FarIdentity final : public ComputeKernel {
  Status compute(KernelContext& c) override {
    c.set_output(0, c.input(0));
    return {};
  }
};

class FarDevice;

/// Reads the clock of the device.
class FarTimer final : public WorkTimer {
 public:
  explicit FarTimer(FarDevice& device);
  ~FarTimer() override;
  void begin() override;
  void end() override;
  std::optional<double> ns() const override { return *end_ - *begin_; }
  std::optional<double> ns_after(const WorkTimer& first) const override {
    return *begin_ - *static_cast<const FarTimer&>(first).begin_;
  }

 private:
  FarDevice& device_;
  std::optional<double> begin_, end_;
};

/// A device that keeps what it is asked until the test answers. A kernel takes 10 ns of its own clock, a copy in 100, a
/// copy out 1000.
class FarDevice final : public Device {
 public:
  FarDevice(const DeviceInfo& info) : Device(info, {.direct = false, .runs_on = true}) {}
  Result<Ran> run(const Node&, ComputeKernel* kernel, KernelContext& context, std::span<const Tensor>) override {
    ++kernels;
    if (!kernel) return Ran{.asks = true};
    TROUPE_RETURN_IF_ERROR(kernel->compute(context));
    now += 10;
    return Ran{};
  }
  Result<Tensor> copy_in(const Tensor& value, WorkTimer* timer) override {
    ++copies_in;
    pass(timer, 100);
    return to(value, info.allocator);
  }
  bool copies_in_later(const Tensor&) const override { return later; }
  void copy_in_later(const Tensor& value, const RequestTag& tag, std::shared_ptr<WorkTimer> timer) override {
    asked.push_back({tag, std::vector<Tensor>{*copy_in(value, timer.get())}, 0, timer});
  }
  Status copy_out(const Tensor& value, const RequestTag& tag, WorkTimer* timer) override {
    if (refuse) return make_error(Code::kUnavailable, "the card is lost");
    ++copies_out;
    pass(timer, 1000);
    asked.push_back({tag, std::vector<Tensor>{*to(value, system_allocator())}});
    return {};
  }
  Status mark(const RequestTag& tag) override {
    ++marks;
    asked.push_back({tag, std::vector<Tensor>()});
    return {};
  }
  std::shared_ptr<WorkTimer> timer() override { return std::make_shared<FarTimer>(*this); }
  void pass(WorkTimer* timer, double ns) {
    if (timer) timer->begin();
    now += ns;
    if (timer) timer->end();
  }
  static Result<Tensor> to(const Tensor& value, const std::shared_ptr<Allocator>& allocator) {
    TROUPE_ASSIGN(Tensor copy, Tensor::make(value.dtype(), value.shape(), allocator));
    std::memcpy(copy.mutable_address(), value.address(), value.bytes());
    return copy;
  }

  int kernels = 0, copies_in = 0, copies_out = 0, marks = 0;
  bool refuse = false, later = false;
  std::vector<ResourceAnswer> asked;
  double now = 0;  // of its own clock, nanoseconds
  int timers = 0;  // that are there
  int timed = 0;   // that were made
};

void FarTimer::begin() { begin_ = device_.now; }
void FarTimer::end() { end_ = device_.now; }
FarTimer::FarTimer(FarDevice& device) : device_(device) { ++device_.timers, ++device_.timed; }
FarTimer::~FarTimer() { --device_.timers; }

class Posts final : public Outbox {
 public:
  void send_tensors(uint32_t to, std::vector<ReadyTensor> tensors) override {
    for (ReadyTensor& t : tensors) sent.emplace_back(to, std::move(t));
  }
  Status use_resource(const StepCall&, const ResourceRef&, ResourceUse&&) override {
    return make_error(Code::kInternal, "no resources");
  }
  void run_blocking(BlockingUse) override {}
  void flush_uses() override {}
  void cancel_uses(int64_t) override {}
  void abort_elsewhere(const StepRef& call) override { aborted = call; }
  int64_t now_ns() override { return ++now; }
  std::vector<std::pair<uint32_t, ReadyTensor>> sent;
  StepRef aborted;
  int64_t now = 0;
};

/// cpu:0 and gpu:0.
struct Pair {
  Pair() {
    const KernelRegistry::Types floats = {{"T", {DType::kFloat32}}};
    kernels.add<FarPlusOne>("Neg", DeviceKind::kCuda, floats);
    kernels.add<FarTimes>("Mul", DeviceKind::kCuda, floats, {{-1}, {}});
    kernels.add<FarIdentity>("Identity", DeviceKind::kCuda, {});
    kernels.add<FarGreater>("Greater", DeviceKind::kCuda, floats, {{}, {0}});
    compute = std::make_unique<gpu::Compute>(
        gpu::Compute{.stream = stream(), .card = card, .allocator = far, .upload = [this](const Tensor& value) {
                       return FarDevice::to(value, far);
                     }});
    devices.push_back({"/job:localhost/replica:0/task:0/device:cpu:0", DeviceKind::kCpu, 1, system_allocator()});
    devices.push_back({"/job:localhost/replica:0/task:0/device:gpu:0", DeviceKind::kCuda, 1, far});
    devices[1].gpu = compute.get();
    cpu.emplace(devices[0]);
    gpu.emplace(devices[1]);
    executors.push_back(std::make_unique<Executor>(0, *cpu, posts[0], counters[0]));
    executors.push_back(std::make_unique<Executor>(1, *gpu, posts[1], counters[1]));
  }
  ~Pair() {
    results.clear();
    executors.clear();
    cache.reset();
  }
  /// Nothing in these tests uses them.
  static gpu::Stream& stream() { return *reinterpret_cast<gpu::Stream*>(alignof(std::max_align_t)); }

  std::shared_ptr<const StepPlan> plan(std::vector<Output> feeds, std::vector<Output> fetches) {
    REQUIRE(scope.status().ok());
    auto plan = make_plan(
        graph, std::move(feeds), std::move(fetches), {},
        {.kernels = kernels, .devices = devices, .default_device = default_device, .passes = GraphPasses::none()},
        *cache);
    INFO((plan.ok() ? "" : plan.error().str()));
    REQUIRE(plan.ok());
    return *plan;
  }
  StepRef begin(const std::shared_ptr<const StepPlan>& plan, std::vector<Tensor> values, bool check_numerics = false,
                std::shared_ptr<Trace> trace = {}) {
    auto call = std::make_shared<StepCall>(
        next++, plan, std::move(values), check_numerics,
        [this](Result<std::vector<Tensor>> r) { results.push_back(std::move(r)); }, std::move(trace));
    for (const PartitionPlan& p : plan->partitions) executors[p.device]->start(call);
    return call;
  }
  StepRef step(std::vector<Output> feeds, std::vector<Tensor> values, std::vector<Output> fetches,
               bool check_numerics = false) {
    return begin(plan(std::move(feeds), std::move(fetches)), std::move(values), check_numerics);
  }
  /// Everything goes on; answers of the GPU, where `answers`, one by one.
  void run(bool answers = true) {
    bool more = true;
    while (std::exchange(more, false)) {
      for (uint32_t i = 0; i < 2; ++i) {
        while (executors[i]->run(1'000'000)) {
        }
        for (auto& [to, tensor] : std::exchange(posts[i].sent, {})) {
          more = true;
          std::vector<ReadyTensor> one;
          one.push_back(std::move(tensor));
          executors[to]->tensors_ready(std::move(one));
        }
        if (const StepRef aborted = std::exchange(posts[i].aborted, {})) executors[1 - i]->abort(aborted), more = true;
      }
      if (answers && !gpu->asked.empty()) {
        std::vector<ResourceAnswer> first;
        first.push_back(std::move(gpu->asked.front()));
        gpu->asked.erase(gpu->asked.begin());
        executors[1]->answered(std::move(first));
        more = true;
      }
    }
  }
  Output placeholder() { return scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{}}}); }
  float result(size_t i = 0) { return (*results.at(i))[0].data<float>()[0]; }

  OpRegistry ops = testing::op_library()->ops;
  KernelRegistry kernels = testing::op_library()->kernels;
  Graph graph{ops};
  Scope scope{graph};
  Scope far_scope = scope.device("/gpu:0");
  std::shared_ptr<FarAllocator> memory = std::make_shared<FarAllocator>();
  std::shared_ptr<Allocator> far = memory;
  gpu::Card card;
  std::unique_ptr<gpu::Compute> compute;
  std::optional<KernelCache> cache{std::in_place};
  std::vector<DeviceInfo> devices;
  uint32_t default_device = 0;
  std::optional<CpuDevice> cpu;
  std::optional<FarDevice> gpu;
  Posts posts[2];
  Executor::Counters counters[2];
  std::vector<std::unique_ptr<Executor>> executors;
  std::vector<Result<std::vector<Tensor>>> results;
  int64_t next = 1;
};

}  // namespace

TEST_CASE("device: a chain in a GPU's memory copies what comes in and goes out, and ends by a mark") {
  Pair p;
  const Output x = p.placeholder(), a = p.far_scope.op("Neg", {x}), b = p.far_scope.op("Neg", {a});
  const Output c = p.far_scope.op("Mul", {b, p.far_scope.constant(Tensor::scalar(10.f))});
  p.step({x}, {Tensor::scalar(1.f)}, {c});
  p.run(false);
  // All three were run without an answer; only the fetch waits.
  CHECK(p.gpu->kernels == 3);
  CHECK(p.gpu->copies_in == 1);
  CHECK(p.gpu->copies_out == 1);
  CHECK(p.gpu->marks == 0);
  CHECK(p.results.empty());
  p.run();
  CHECK(p.gpu->marks == 1);
  REQUIRE(p.results.size() == 1);
  CHECK(p.result() == 30);
  CHECK((*p.results[0])[0].space() == Space::kHost);
}

TEST_CASE("device: one copy serves all who read a value in the other memory") {
  Pair p;
  const Output x = p.placeholder(), a = p.far_scope.op("Neg", {x});
  // On the CPU twice, as a factor at the host, and fetched.
  const Output b = p.scope.op("Square", {a}), c = p.scope.op("Sqrt", {a}), d = p.far_scope.op("Mul", {a, a});
  p.step({x}, {Tensor::scalar(3.f)}, {a, b, c, d});
  p.run();
  REQUIRE(p.results.size() == 1);
  REQUIRE(p.results[0].ok());
  const std::vector<Tensor>& values = *p.results[0];
  CHECK(values[0].data<float>()[0] == 4);
  CHECK(values[1].data<float>()[0] == 16);
  CHECK(values[2].data<float>()[0] == 2);
  CHECK(values[3].data<float>()[0] == 16);
  CHECK(p.gpu->copies_out == 2);  // of a and d
}

TEST_CASE("device: branches and loops carry values of a GPU, and decide at the host") {
  Pair p;
  const Output x = p.placeholder();
  const std::vector<Output> loop = while_loop(
      p.far_scope, {x},
      [&](const Scope& s, const std::vector<Output>& v) {
        return s.op("Greater", {s.constant(Tensor::scalar(5.f)), v[0]});
      },
      [](const Scope& s, const std::vector<Output>& v) { return std::vector{s.op("Neg", {v[0]})}; });
  const Output bound = p.far_scope.op("Greater", {loop[0], p.far_scope.constant(Tensor::scalar(2.f))});
  const std::vector<Output> branch = cond(
      p.far_scope, bound, [&](const Scope& s) { return std::vector{s.op("Neg", {loop[0]})}; },
      [&](const Scope& s) {
        return std::vector{s.op("Mul", {loop[0], s.constant(Tensor::scalar(100.f))})};
      });
  p.step({x}, {Tensor::scalar(1.5f)}, branch);
  p.run();
  REQUIRE(p.results.size() == 1);
  INFO((p.results[0].ok() ? "" : p.results[0].error().str()));
  REQUIRE(p.results[0].ok());
  CHECK(p.result() == 6.5f);
}

TEST_CASE("device: a node has a kernel for each kind of device that it is planned for") {
  Pair p;
  const Output x = p.placeholder(), y = p.scope.op("Neg", {x});
  for (uint32_t device : {0, 1, 0, 1}) {
    p.default_device = device;
    p.results.clear();
    p.step({x}, {Tensor::scalar(1.f)}, {y});
    p.run();
    REQUIRE(p.results.size() == 1);
    REQUIRE(p.results[0].ok());
    CHECK(p.result() == (device ? 2.f : -1.f));  // "Neg" adds 1 in far memory
  }
}

TEST_CASE("device: an error while copies are under way ends the step when they have come") {
  Pair p;
  const Output x = p.placeholder(), a = p.far_scope.op("Neg", {x}), b = p.scope.op("Neg", {p.scope.op("Neg", {x})});
  const StepRef step = p.step({x}, {Tensor::scalar(1.f)}, {a, b});
  p.run(false);
  CHECK(p.gpu->copies_out == 1);
  CHECK(step->fail(make_error(Code::kCancelled, "enough")));
  p.executors[1]->abort(step);
  p.executors[0]->abort(step);
  p.run(false);
  CHECK(p.results.empty());  // the copy still writes
  p.run();
  REQUIRE(p.results.size() == 1);
  CHECK(p.results[0].error().code == Code::kCancelled);
  CHECK(p.gpu->marks == 0);
}

TEST_CASE("device: what the GPU says of a copy or mark is the step's error, with node and device") {
  Pair p;
  const Output x = p.placeholder(), a = p.far_scope.named("lost").op("Neg", {x});
  p.gpu->refuse = true;
  p.step({x}, {Tensor::scalar(1.f)}, {a});
  p.run();
  REQUIRE(p.results.size() == 1);
  CHECK(p.results[0].error().code == Code::kUnavailable);
  CHECK(p.results[0].error().node == a.node->name());
  CHECK(p.results[0].error().device.ends_with("gpu:0"));

  p.gpu->refuse = false;
  p.step({x}, {Tensor::scalar(1.f)}, {a});
  p.run(false);
  REQUIRE(p.gpu->asked.size() == 1);
  p.gpu->asked[0].outputs = make_error(Code::kUnavailable, "lost meanwhile");
  p.run();
  REQUIRE(p.results.size() == 2);
  CHECK(p.results[1].error().message == "lost meanwhile");
  CHECK(p.results[1].error().node == a.node->name());

  p.step({x}, {Tensor::scalar(1.f)}, {a});
  p.run(false);
  p.executors[1]->answered(std::exchange(p.gpu->asked, {}));  // the copy
  p.run(false);
  REQUIRE(p.gpu->asked.size() == 1);
  p.gpu->asked[0].outputs = make_error(Code::kUnavailable, "lost at the end");
  p.run();
  REQUIRE(p.results.size() == 3);
  CHECK(p.results[2].error().message == "lost at the end");
}

TEST_CASE("device: checked numbers are looked at behind each node, and the first NaN's node is named") {
  Pair p;
  const Output x = p.placeholder(), a = p.far_scope.named("first").op("Neg", {x}),
               b = p.far_scope.named("second").op("Neg", {a});
  p.step({x}, {Tensor::scalar(1.f)}, {b}, true);
  p.run();
  REQUIRE(p.results.size() == 1);
  CHECK(p.result() == 3);
  p.step({x}, {Tensor::scalar(1000.f)}, {b}, true);
  p.run();
  REQUIRE(p.results.size() == 2);
  CHECK(p.results[1].error().node == b.node->name());
  CHECK(p.results[1].error().message.find("NaN") != std::string::npos);
}

TEST_CASE("device: a trace tells what a GPU took for nodes and copies, and what putting them in took") {
  Pair p;
  p.gpu->now = 5e6;
  p.posts[1].now = 700;
  const Output x = p.placeholder(), a = p.far_scope.named("a").op("Neg", {x}),
               b = p.far_scope.named("b").op("Neg", {a});
  const Output at_host = p.far_scope.named("at_host").op("Greater", {b, a});
  const auto trace = std::make_shared<Trace>();
  p.begin(p.plan({x}, {b, at_host}), {Tensor::scalar(1.f)}, false, trace);
  p.run();
  REQUIRE(p.results.size() == 1);
  REQUIRE(p.results[0].ok());
  using Kind = TraceEvent::Kind;
  std::map<std::pair<std::string, Kind>, int64_t> took;
  std::map<Kind, int> count;
  int64_t asked = 0, before = 0;
  for (const TraceEvent& e : trace->take()) {
    if (e.device != 1) continue;
    ++count[e.kind];
    took[{e.node ? e.node->name() : "", e.kind}] = e.end_ns - e.begin_ns;
    if (e.kind == Kind::kLaunch && asked == 0) asked = e.begin_ns;
    const bool of_gpu = e.kind == Kind::kCopyIn || e.kind == Kind::kCopyOut || e.kind == Kind::kRun;
    if (!of_gpu || (e.node && e.node->name() == "at_host")) continue;
    CHECK(e.begin_ns >= before);
    CHECK(e.begin_ns > asked);
    before = e.begin_ns;
  }
  CHECK(took.at({"a", Kind::kRun}) == 10);
  CHECK(took.at({"b", Kind::kRun}) == 10);
  CHECK(took.at({"b", Kind::kCopyOut}) == 1000);
  CHECK(count[Kind::kCopyIn] == 1);
  CHECK(count[Kind::kCopyOut] == 1);
  CHECK(count[Kind::kLaunch] == 4);
  CHECK(count[Kind::kAnswer] == 0);
  // The host computed it, by its own clock.
  CHECK(took.at({"at_host", Kind::kRun}) < 10);
  CHECK(p.gpu->timers == 0);
}

TEST_CASE("device: times of a GPU are taken in some steps alone, and none is kept of a step that is aborted") {
  Pair p;
  const Output x = p.placeholder(), a = p.far_scope.named("a").op("Neg", {x});
  const auto plan = p.plan({x}, {a});
  const auto gpu = std::ranges::find(plan->partitions, 1u, &PartitionPlan::device);
  const auto node = std::ranges::find(gpu->graph_nodes, a.node) - gpu->graph_nodes.begin();
  const auto firings = [&] { return gpu->measured[static_cast<size_t>(node)].firings.load(); };
  p.begin(plan, {Tensor::scalar(1.f)});
  p.run();
  CHECK(p.gpu->timed == 0);
  CHECK(firings() == 0);
  for (int i = 0; i < 2; ++i) p.begin(plan, {Tensor::scalar(1.f)}), p.run();
  CHECK(firings() == 2);
  CHECK(gpu->measured[static_cast<size_t>(node)].ns == 10);
  CHECK(gpu->measured[static_cast<size_t>(node)].bytes == 4);

  const StepRef step = p.begin(plan, {Tensor::scalar(1.f)});
  p.run(false);
  CHECK(p.gpu->timers > 0);
  CHECK(step->fail(make_error(Code::kCancelled, "enough")));
  p.executors[1]->abort(step);
  p.executors[0]->abort(step);
  p.run();
  CHECK(p.results.back().error().code == Code::kCancelled);
  CHECK(p.gpu->timers == 0);
  CHECK(firings() == 2);

  const int timed = p.gpu->timed;
  for (int i = 0; i < 20; ++i) p.begin(plan, {Tensor::scalar(1.f)}), p.run();
  CHECK(p.gpu->timed == timed);
  CHECK(firings() == 2);
}

TEST_CASE("device: while a large value is copied in other nodes go on, and a step that is aborted waits for it") {
  Pair p;
  const Output x = p.placeholder(), a = p.far_scope.named("a").op("Neg", {x}),
               b = p.far_scope.op("Neg", {p.far_scope.constant(Tensor::scalar(5.f))});
  const auto trace = std::make_shared<Trace>();
  const auto plan = p.plan({x}, {a, b});
  p.gpu->later = true;
  p.begin(plan, {Tensor::scalar(1.f)}, false, trace);
  p.run(false);
  CHECK(p.gpu->copies_in == 1);
  CHECK(p.gpu->kernels == 1);  // b
  p.run();
  REQUIRE(p.results.size() == 1);
  REQUIRE(p.results[0].ok());
  CHECK(p.result() == 2);
  CHECK(std::ranges::count(trace->take(), TraceEvent::Kind::kCopyIn, &TraceEvent::kind) == 1);
  CHECK(p.gpu->timers == 0);

  const StepRef step = p.begin(plan, {Tensor::scalar(1.f)});
  p.run(false);
  CHECK(step->fail(make_error(Code::kCancelled, "enough")));
  p.executors[1]->abort(step);
  p.executors[0]->abort(step);
  p.run(false);
  CHECK(p.results.size() == 1);
  p.run();
  REQUIRE(p.results.size() == 2);
  CHECK(p.results[1].error().code == Code::kCancelled);
}

TEST_CASE("device: no memory of a GPU is left when its steps and plans are gone") {
  auto memory = std::make_shared<FarAllocator>();
  {
    Pair p;
    memory = p.memory;
    const Output x = p.placeholder(), a = p.far_scope.op("Neg", {x});
    for (int i = 0; i < 3; ++i) p.step({x}, {Tensor::scalar(1.f)}, {a});
    p.run();
    CHECK(p.results.size() == 3);
  }
  CHECK(memory->live == 0);
}

}  // namespace troupe::testing
