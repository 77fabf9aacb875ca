// SPDX-License-Identifier: Apache-2.0
// The executor without actors: each test plays the other actors by hand, in an order of its own.
#include "devices/executor.h"

#include <catch2/catch.hpp>

#include <optional>

#include "plan/plan.h"
#include "tests/op_library.h"
#include "troupe/scope.h"

namespace troupe {
namespace {

/// Keeps what executors send; time moves by one microsecond a look.
struct Recorder : Outbox {
  void send_tensors(uint32_t device, std::vector<ReadyTensor> tensors) override {
    sent[device].push_back(std::move(tensors));
  }
  Status use_resource(const StepCall&, const ResourceRef& handle, ResourceUse&& use) override {
    if (handle->name == "refused") return make_error(Code::kNotFound, "no such resource");
    uses.push_back(std::move(use));
    return {};
  }
  void run_blocking(BlockingUse use) override { blocked.push_back(std::move(use)); }
  void flush_uses() override { ++flushes; }
  void cancel_uses(int64_t step) override { cancelled.push_back(step); }
  void abort_elsewhere(const StepRef& call) override { aborted.push_back(call->id); }
  int64_t now_ns() override { return now += 1000; }
  bool messages_wait() override { return waiting; }

  std::map<uint32_t, std::vector<std::vector<ReadyTensor>>> sent;
  std::vector<ResourceUse> uses;
  std::vector<BlockingUse> blocked;
  std::vector<int64_t> cancelled, aborted;
  int flushes = 0;
  int64_t now = 0;
  bool waiting = false;
};

/// Two devices, their executors, and steps of a graph on them.
struct Stage {
  Stage() {
    for (uint32_t i = 0; i < 2; ++i) {
      devices.push_back(
          {fmt::format("/job:localhost/replica:0/task:0/device:cpu:{}", i), DeviceKind::kCpu, 1, system_allocator()});
    }
    for (uint32_t i = 0; i < 2; ++i) {
      working.push_back(std::make_unique<CpuDevice>(devices[i]));
      executors.push_back(std::make_unique<Executor>(i, *working[i], outbox[i], counters[i]));
    }
  }
  StepRef step(std::vector<Output> feeds, std::vector<Tensor> values, std::vector<Output> fetches,
               std::vector<const Node*> targets = {}) {
    auto plan = make_plan(
        graph, std::move(feeds), std::move(fetches), targets,
        {.kernels = kernels, .devices = devices, .passes = GraphPasses::none(), .compress_transfers = compression},
        *cache);
    REQUIRE(plan.ok());
    return std::make_shared<StepCall>(next++, *plan, std::move(values), false,
                                      [this](Result<std::vector<Tensor>> r) { results.push_back(std::move(r)); });
  }
  Output placeholder() { return scope.op("Placeholder", {}, {{"dtype", DType::kInt32}, {"shape", PartialShape{}}}); }
  Output read(const std::string& name) {
    const Output handle =
        scope.op("VarHandleOp", {}, {{"dtype", DType::kInt32}, {"shape", PartialShape{}}, {"shared_name", name}});
    return scope.op("ReadVariableOp", {handle}, {{"dtype", DType::kInt32}});
  }
  void run(uint32_t i) {
    while (executors[i]->run(1'000'000)) {
    }
  }

  OpRegistry ops = testing::op_library()->ops;
  KernelRegistry kernels = testing::op_library()->kernels;
  Graph graph{ops};
  Scope scope{graph};
  std::optional<KernelCache> cache{std::in_place};
  TransferCompression compression = TransferCompression::kOff;
  std::vector<DeviceInfo> devices;
  std::vector<std::unique_ptr<Device>> working;
  Recorder outbox[2];
  Executor::Counters counters[2];
  std::vector<std::unique_ptr<Executor>> executors;
  std::vector<Result<std::vector<Tensor>>> results;
  int64_t next = 1;
};

TEST_CASE("a message that waits is heard after the next expensive node") {
  Stage s;
  const Output x = s.placeholder();
  const Output a = s.scope.op("Neg", {x}), b = s.scope.op("Neg", {a}), c = s.scope.op("Neg", {b});
  const StepRef step = s.step({x}, {Tensor::scalar(5)}, {c});
  const PartitionPlan& plan = step->plan->partitions[0];
  for (uint32_t i = 0; i < plan.size(); ++i) plan.cost_ns[i] = 1'000'000;
  s.executors[0]->start(step);
  s.outbox[0].waiting = true;
  CHECK(s.executors[0]->run(1'000'000'000));
  CHECK(s.counters[0].nodes == 1);
  CHECK(s.executors[0]->run(1'000'000'000));
  CHECK(s.counters[0].nodes == 2);
  s.outbox[0].waiting = false;
  CHECK_FALSE(s.executors[0]->run(1'000'000'000));
  REQUIRE(s.results.size() == 1);
  CHECK((*s.results[0])[0].identical(Tensor::scalar(-5)));
}

TEST_CASE("of very many steps a turn fires several expensive nodes, those of the oldest step first") {
  Stage s;
  const Output x = s.placeholder();
  const Output c = s.scope.op("Neg", {s.scope.op("Neg", {s.scope.op("Neg", {x})})});
  constexpr int kSteps = 500;
  for (int n = 0; n < kSteps; ++n) {
    const StepRef step = s.step({x}, {Tensor::scalar(n)}, {c});
    const PartitionPlan& plan = step->plan->partitions[0];
    for (uint32_t i = 0; i < plan.size(); ++i) plan.cost_ns[i] = 1'000'000;
    s.executors[0]->start(step);
  }
  s.outbox[0].waiting = true;
  int turns = 1;
  while (s.executors[0]->run(1'000'000'000)) ++turns;
  CHECK(turns < kSteps);  // each looks at all steps, and there are 3 nodes a step
  REQUIRE(s.results.size() == kSteps);
  for (int n = 0; n < kSteps; ++n) CHECK((*s.results[static_cast<size_t>(n)])[0].identical(Tensor::scalar(-n)));
  CHECK(s.executors[0]->idle());
}

TEST_CASE("a lent thread fires what is known to be cheap, and leaves the rest") {
  Stage s;
  const Output x = s.placeholder();
  const Output a = s.scope.op("Neg", {x}), b = s.scope.op("Neg", {a}), c = s.scope.op("Neg", {b});
  const StepRef step = s.step({x}, {Tensor::scalar(5)}, {c});
  const PartitionPlan& plan = step->plan->partitions[0];
  const auto cost_of = [&](const Output& y) -> std::atomic<uint32_t>& {
    return plan.cost_ns[static_cast<size_t>(std::ranges::find(plan.graph_nodes, y.node) - plan.graph_nodes.begin())];
  };
  const auto fired = [&] { return s.counters[0].nodes.load(); };
  Executor& executor = *s.executors[0];
  cost_of(a) = 100;
  cost_of(b) = 1'000'000;  // expensive; c was never seen
  executor.start(step);
  CHECK(executor.run(1'000'000'000, Executor::Turn::kLent));
  CHECK(fired() == 1);
  CHECK(executor.run(1'000'000'000, Executor::Turn::kLent));
  CHECK(fired() == 1);
  s.outbox[0].waiting = true;
  CHECK(executor.run(1'000'000'000));
  CHECK(fired() == 2);
  CHECK(executor.run(1'000'000'000, Executor::Turn::kLent));
  CHECK(fired() == 2);
  cost_of(c) = 100;
  CHECK_FALSE(executor.run(1'000'000'000, Executor::Turn::kLent));
  REQUIRE(s.results.size() == 1);
  CHECK((*s.results[0])[0].identical(Tensor::scalar(-5)));
}

TEST_CASE("a lent thread takes no time for kernels that a team of threads helps") {
  Stage s;
  const_cast<DeviceInfo&>(s.working[0]->info).threads = 2;
  const Output x = s.placeholder(), y = s.scope.op("Neg", {x});
  const StepRef step = s.step({x}, {Tensor::scalar(5)}, {y});
  for (uint32_t i = 0; i < step->plan->partitions[0].size(); ++i) step->plan->partitions[0].cost_ns[i] = 100;
  s.executors[0]->start(step);
  CHECK(s.executors[0]->run(1'000'000'000, Executor::Turn::kLent));
  CHECK(s.results.empty());
  s.run(0);
  CHECK(s.results.size() == 1);
}

TEST_CASE("a cost model learns what a resource took that answered at once") {
  Stage s;
  const Output value = s.read("v");
  StepRef step = s.step({}, {}, {value});
  const PartitionPlan& plan = step->plan->partitions[0];
  const auto node = static_cast<size_t>(std::ranges::find(plan.graph_nodes, value.node) - plan.graph_nodes.begin());
  for (int i = 0; i < 3; ++i) {
    s.executors[0]->start(step);
    s.run(0);
    REQUIRE(s.outbox[0].uses.size() == 1);
    const ResourceUse use = std::exchange(s.outbox[0].uses, {})[0];
    CHECK(use.timed == (i > 0));  // the first step of a plan only warms
    std::vector<ResourceAnswer> answers;
    answers.push_back({use.tag, std::vector<Tensor>{Tensor::scalar(3)}, use.timed ? 4000 * i : 0});
    s.executors[0]->answered(std::move(answers));
    s.run(0);
    step = std::make_shared<StepCall>(s.next++, step->plan, std::vector<Tensor>(), false, [](auto) {});
  }
  CHECK(plan.measured[node].firings == 2);
  CHECK(plan.measured[node].ns == 6000);
  CHECK(plan.measured[node].bytes == 4);
}

TEST_CASE("a tensor may come before its step") {
  Stage s;
  const Output x = s.placeholder();
  const Output a = s.scope.device("/cpu:0").op("Neg", {x});
  const Output b = s.scope.device("/cpu:1").op("Neg", {a});
  const StepRef step = s.step({x}, {Tensor::scalar(5)}, {b});
  s.executors[0]->start(step);
  s.run(0);
  REQUIRE(s.outbox[0].sent[1].size() == 1);
  s.executors[1]->tensors_ready(std::move(s.outbox[0].sent[1][0]));
  CHECK(s.results.empty());
  s.executors[1]->start(step);
  s.run(1);
  REQUIRE(s.results.size() == 1);
  CHECK((*s.results[0])[0].identical(Tensor::scalar(5)));
  CHECK(s.executors[0]->idle());
  CHECK(s.executors[1]->idle());
}

TEST_CASE("one tensor for many readers crosses once, and tensors of one drain travel together") {
  Stage s;
  const Output x = s.placeholder();
  const Output a = s.scope.device("/cpu:0").op("Neg", {x});
  const Output b = s.scope.device("/cpu:0").op("AddV2", {x, x});
  const Scope there = s.scope.device("/cpu:1");
  const Output c = there.op("AddV2", {there.op("Mul", {a, a}), there.op("Mul", {a, b})});
  const StepRef step = s.step({x}, {Tensor::scalar(2)}, {c});
  s.executors[0]->start(step);
  s.run(0);
  REQUIRE(s.outbox[0].sent[1].size() == 1);
  CHECK(s.outbox[0].sent[1][0].size() == 2);
}

TEST_CASE("a compressed tensor has half of the bytes on its way, and is expanded where it arrives") {
  Stage s;
  s.compression = TransferCompression::kBFloat16;
  const Output x = s.scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{2}}});
  const Output a = s.scope.device("/cpu:0").op("Neg", {x});
  const Output b = s.scope.device("/cpu:1").op("Neg", {a});
  const StepRef step = s.step({x}, {Tensor::of<float>({1.0001f, -8})}, {b});
  s.executors[0]->start(step);
  s.run(0);
  REQUIRE(s.outbox[0].sent[1].size() == 1);
  const Tensor& sent = s.outbox[0].sent[1][0][0].value;
  CHECK(sent.dtype() == DType::kBFloat16);
  CHECK(sent.bytes() == 4);
  s.executors[1]->start(step);
  s.executors[1]->tensors_ready(std::move(s.outbox[0].sent[1][0]));
  s.run(1);
  REQUIRE(s.results.size() == 1);
  CHECK((*s.results[0])[0].identical(Tensor::of<float>({1, -8})));
}

TEST_CASE("a constant is not fired, and each device that reads it has it") {
  Stage s;
  const Output x = s.placeholder(), three = s.scope.device("/cpu:0").constant(3);
  const Output a = s.scope.device("/cpu:0").op("AddV2", {x, three});
  const Output b = s.scope.device("/cpu:1").op("AddV2", {three, s.scope.device("/cpu:1").op("AddV2", {x, three})});
  for (int i = 0; i < 2; ++i) {
    const StepRef step = s.step({x}, {Tensor::scalar(i)}, {a, b, three});
    for (uint32_t d : {0, 1}) {
      s.executors[d]->start(step);
      s.run(d);
      CHECK(s.outbox[d].sent.empty());
    }
    REQUIRE(s.results.size() == static_cast<size_t>(i) + 1);
    const std::vector<Tensor>& fetched = *s.results.back();
    CHECK(fetched[0].identical(Tensor::scalar(3 + i)));
    CHECK(fetched[1].identical(Tensor::scalar(6 + i)));
    CHECK(fetched[2].identical(Tensor::scalar(3)));
  }
  CHECK(s.counters[0].nodes == 2);
  CHECK(s.counters[1].nodes == 4);
}

TEST_CASE("a failing node ends the step everywhere, once, and frees what it held") {
  Stage s;
  const Output x = s.placeholder();
  const Output a = s.scope.device("/cpu:0").named("bad").op("FloorDiv", {x, s.scope.constant(0)});
  const Output b = s.scope.device("/cpu:1").op("Neg", {a});
  const StepRef step = s.step({x}, {Tensor::scalar(5)}, {b});
  s.executors[1]->start(step);
  s.run(1);
  s.executors[0]->start(step);
  s.run(0);
  CHECK(s.results.empty());  // device 1 has not heard
  CHECK(s.outbox[0].aborted == std::vector<int64_t>{step->id});
  s.executors[1]->abort(step);
  s.run(1);
  REQUIRE(s.results.size() == 1);
  CHECK(s.results[0].error().node == "bad");
  CHECK(s.executors[0]->idle());
  CHECK(s.executors[1]->idle());
}

TEST_CASE("a step that failed before it began on a device is reported by that device too") {
  Stage s;
  const Output x = s.placeholder();
  const StepRef step = s.step({x}, {Tensor::scalar(5)}, {s.scope.op("Neg", {x})});
  step->fail(make_error(Code::kCancelled, "early"));
  s.executors[0]->start(step);
  REQUIRE(s.results.size() == 1);
  CHECK(s.results[0].error().code == Code::kCancelled);
}

TEST_CASE("an aborted step ends when its requests are answered, not before") {
  Stage s;
  const StepRef step = s.step({}, {}, {s.read("v")});
  s.executors[0]->start(step);
  s.run(0);
  REQUIRE(s.outbox[0].uses.size() == 1);
  CHECK(s.outbox[0].flushes == 1);
  step->fail(make_error(Code::kDeadlineExceeded, "late"));
  s.executors[0]->abort(step);
  s.run(0);
  CHECK(s.outbox[0].cancelled == std::vector<int64_t>{step->id});
  CHECK(s.results.empty());
  std::vector<ResourceAnswer> answers;
  answers.push_back({s.outbox[0].uses[0].tag, std::vector<Tensor>{Tensor::scalar(1)}});
  s.executors[0]->answered(std::move(answers));
  s.run(0);
  REQUIRE(s.results.size() == 1);
  CHECK(s.results[0].error().code == Code::kDeadlineExceeded);
  CHECK(s.executors[0]->idle());
}

TEST_CASE("a resource that is not there fails the node that asked") {
  Stage s;
  const StepRef step = s.step({}, {}, {s.read("refused")});
  s.executors[0]->start(step);
  s.run(0);
  REQUIRE(s.results.size() == 1);
  CHECK(s.results[0].error().code == Code::kNotFound);
  CHECK(s.results[0].error().op == "ReadVariableOp");
}

TEST_CASE("a wrong count of outputs from a resource is an error, not a crash") {
  Stage s;
  const StepRef step = s.step({}, {}, {s.read("v")});
  s.executors[0]->start(step);
  s.run(0);
  std::vector<ResourceAnswer> answers;
  answers.push_back({s.outbox[0].uses[0].tag, std::vector<Tensor>{}});
  s.executors[0]->answered(std::move(answers));
  s.run(0);
  REQUIRE(s.results.size() == 1);
  CHECK_FALSE(s.results[0].ok());
}

TEST_CASE("a node that waits for files does so elsewhere, and the rest of its step goes on") {
  Stage s;
  const auto texts = [&](const std::string& text) { return s.scope.constant(Tensor::of<std::string>({text}, {1})); };
  const Output x = s.placeholder();
  const Output read =
      s.scope.op("RestoreV2", {s.scope.constant(Tensor::scalar<std::string>("/no/such/file")), texts("w"), texts("")},
                 {{"dtypes", std::vector<DType>{DType::kInt32}}});
  const StepRef step = s.step({x}, {Tensor::scalar(5)}, {read, s.scope.op("Neg", {x})});
  s.executors[0]->start(step);
  s.run(0);
  REQUIRE(s.outbox[0].blocked.size() == 1);
  BlockingUse& use = s.outbox[0].blocked[0];
  CHECK(use.request.inputs.size() == 3);
  CHECK(use.request.step == step->id);
  std::vector<ResourceAnswer> answers;
  answers.push_back({use.tag, std::vector<Tensor>{Tensor::scalar(3)}});
  s.executors[0]->answered(std::move(answers));
  s.run(0);
  REQUIRE(s.results.size() == 1);
  CHECK((*s.results[0])[0].identical(Tensor::scalar(3)));
  CHECK((*s.results[0])[1].identical(Tensor::scalar(-5)));
}

TEST_CASE("a step that is aborted does not wait for what may block, which owns all it needs and answers nobody") {
  Stage s;
  const Output x = s.placeholder();
  const Output text = s.scope.op("Placeholder", {}, {{"dtype", DType::kString}, {"shape", PartialShape{}}});
  StepRef step = s.step({x, text}, {Tensor::scalar(5), Tensor::scalar<std::string>("/no/such/file")},
                        {s.scope.op("ReadFile", {text}), s.scope.op("Neg", {x})});
  const std::weak_ptr<StepCall> watched = step;
  s.executors[0]->start(step);
  s.run(0);
  REQUIRE(s.outbox[0].blocked.size() == 1);
  CHECK(s.results.empty());
  step->fail(make_error(Code::kDeadlineExceeded, "too late"));
  s.executors[0]->abort(step);
  s.run(0);
  REQUIRE(s.results.size() == 1);
  CHECK(s.results[0].error().code == Code::kDeadlineExceeded);
  CHECK(s.executors[0]->idle());
  step.reset();
  CHECK(watched.expired());

  s.cache.reset();  // now only the request has the kernel
  const BlockingUse use = std::move(s.outbox[0].blocked[0]);
  CHECK(use.call.expired());
  CHECK(use.kernel->run(use.request).error().code == Code::kNotFound);
  for (int i = 0; i < 2; ++i) {
    std::vector<ResourceAnswer> answers;
    answers.push_back({use.tag, std::vector<Tensor>{Tensor::scalar<std::string>("late")}});
    s.executors[0]->answered(std::move(answers));
    s.run(0);
  }
  CHECK(s.results.size() == 1);
}

TEST_CASE("a long step lets others have the thread, and goes on where it was") {
  Stage s;
  const Output x = s.placeholder();
  Output y = x;
  for (int i = 0; i < 1000; ++i) y = s.scope.op("AddV2", {y, x});
  const StepRef step = s.step({x}, {Tensor::scalar(1)}, {y});
  s.executors[0]->start(step);
  int turns = 1;
  while (s.executors[0]->run(1000)) ++turns;  // one look at the clock is a microsecond
  CHECK(turns > 5);
  REQUIRE(s.results.size() == 1);
  CHECK((*s.results[0])[0].identical(Tensor::scalar(1001)));
}

TEST_CASE("steps share a device and do not mix") {
  Stage s;
  const Output x = s.placeholder();
  Output y = x;
  for (int i = 0; i < 300; ++i) y = s.scope.op("AddV2", {y, x});
  const StepRef a = s.step({x}, {Tensor::scalar(1)}, {y});
  const StepRef b = s.step({x}, {Tensor::scalar(2)}, {y});
  s.executors[0]->start(a);
  s.executors[0]->start(b);
  while (s.executors[0]->run(1000)) {
  }
  REQUIRE(s.results.size() == 2);
  const int sum = (*s.results[0])[0].data<int32_t>()[0] + (*s.results[1])[0].data<int32_t>()[0];
  CHECK(sum == 301 + 602);
}

}  // namespace
}  // namespace troupe
