// SPDX-License-Identifier: Apache-2.0
// Engines with GPUs, on a fake of CUDA: sessions, variables, loops, several devices on a card and several cards; memory
// that runs out, launches that are refused, cards that are lost, steps that are cancelled, engines that end amid work.
#include <catch2/catch.hpp>

#include <cmath>
#include <future>
#include <thread>
#include <tuple>

#include "gpu/blas.h"
#include "tests/gpu/fake_platform.h"
#include "tests/repeats.h"
#include "troupe/control_flow.h"
#include "troupe/gradients.h"
#include "troupe/scope.h"
#include "troupe/session.h"
#include "troupe/trace.h"

namespace troupe::testing {
namespace {

using Catch::Contains;

struct GpuStage {
  explicit GpuStage(FakeGpus& gpus, EngineOptions options, SessionOptions session_options = {})
      : engine(make(std::move(options))), graph(engine->ops()) {
    session_options.soft_placement = true;
    session.emplace(*engine, graph, session_options);
  }
  static std::unique_ptr<Engine> make(EngineOptions options) {
    auto made = Engine::create(std::move(options));
    INFO((made.ok() ? "" : made.error().str()));
    REQUIRE(made.ok());
    return std::move(*made);
  }
  Tensor run(const Output& y, const FeedList& feeds = {}) {
    INFO((scope.ok() ? "" : scope.status().error().str()));
    REQUIRE(scope.ok());
    auto result = session->run(feeds, {y});
    INFO((result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    return (*result)[0];
  }
  Output placeholder(const PartialShape& shape) {
    return scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", shape}});
  }

  std::unique_ptr<Engine> engine;
  Graph graph;
  Scope scope{graph};
  Scope gpu = scope.device("/gpu:0");
  std::optional<Session> session;
};

/// Counts a variable up on one of several devices, which all mean the same variable.
struct CountedEverywhere {
  GpuStage& s;
  std::vector<Output> reads;
  std::vector<const Node*> adds;
  const Node* init = nullptr;

  CountedEverywhere(GpuStage& stage, const std::vector<const char*>& devices) : s(stage) {
    for (const char* device : devices) {
      const Scope scope = s.scope.device(device);
      const Output v =
          scope.op("VarHandleOp", {},
                   {{"dtype", DType::kFloat32}, {"shape", PartialShape{3}}, {"shared_name", std::string("v")}});
      if (!init) init = scope.node("AssignVariableOp", {v, scope.constant(Tensor::of<float>({0, 10, 20}))});
      adds.push_back(scope.node("AssignAddVariableOp", {v, scope.constant(Tensor::of<float>({1, 1, 1}))}));
      reads.push_back(scope.op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}}));
    }
    REQUIRE(s.scope.ok());
    REQUIRE(s.session->run({}, {}, {init}).ok());
  }
  void check(size_t device, float count) {
    const Tensor value = s.run(reads[device]);
    for (int i = 0; i < 3; ++i) CHECK(value.data<float>()[i] == count + 10 * static_cast<float>(i));
  }
};

}  // namespace

TEST_CASE("gpu: a session computes on a GPU what the CPU computes, and devices tell their memory") {
  FakeGpus gpus;
  GpuStage s(gpus, gpus.options());
  CHECK(s.engine->devices().size() == 2);
  CHECK(s.engine->devices()[1].ends_with("/device:gpu:0"));
  const Output x = s.placeholder(PartialShape{-1, 3});
  const auto model = [&](const Scope& scope) {
    return scope.op(
        "Tanh",
        {scope.op("Add", {scope.op("Mul", {x, scope.constant(Tensor::of<float>({1, 2, 3}))}), scope.op("Exp", {x})})});
  };
  const Output there = model(s.gpu), here = model(s.scope);
  for (int rows : {1, 5, 0, 300}) {
    std::vector<float> values(static_cast<size_t>(rows) * 3);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 17) / 9 - 1;
    const Tensor fed = Tensor::of<float>(std::span<const float>(values), Shape{rows, 3});
    const Tensor got = s.run(there, {{x, fed}}), expected = s.run(here, {{x, fed}});
    REQUIRE(got.shape() == expected.shape());
    CHECK(got.space() == Space::kHost);
    for (int64_t i = 0; i < got.elements(); ++i) CHECK(got.data<float>()[i] == Approx(expected.data<float>()[i]));
  }
  CHECK(s.engine->device_stats()[1].memory.peak > 0);
  CHECK(s.engine->device_stats()[1].memory.limit > 0);
}

TEST_CASE("gpu: variables live on their GPU, are updated there, saved and restored") {
  FakeGpus gpus;
  GpuStage s(gpus, gpus.options());
  const auto variable = [&](const Scope& scope, const char* name) {
    return scope.op("VarHandleOp", {},
                    {{"dtype", DType::kFloat32}, {"shape", PartialShape{4}}, {"shared_name", std::string(name)}});
  };
  // A momentum step on the GPU and its like on the CPU.
  Output handles[2], reads[2];
  std::vector<const Node*> inits, steps;
  for (int i : {0, 1}) {
    const Scope scope = i ? s.scope : s.gpu;
    const Output v = handles[i] = variable(scope, i ? "here" : "there"), m = variable(scope, i ? "m_here" : "m_there");
    inits.push_back(scope.node("AssignVariableOp", {v, scope.constant(Tensor::of<float>({1, 2, 3, 4}))}));
    inits.push_back(scope.node("AssignVariableOp", {m, scope.constant(Tensor::of<float>({0, 0, 0, 0}))}));
    const Output x = scope.op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}});
    const Output gradient = scope.op("Square", {x});
    steps.push_back(
        scope.node("ResourceApplyMomentum",
                   {v, m, scope.constant(Tensor::scalar(0.01f)), gradient, scope.constant(Tensor::scalar(0.9f))},
                   {{"use_nesterov", true}}));
    reads[i] = scope.op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}});
  }
  REQUIRE(s.scope.ok());
  REQUIRE(s.session->run({}, {}, inits).ok());
  for (int i = 0; i < 10; ++i) {
    const auto ran = s.session->run({}, {}, steps);
    INFO((ran.ok() ? "" : ran.error().str()));
    REQUIRE(ran.ok());
  }
  const auto compare = [&] {
    const Tensor there = s.run(reads[0]), here = s.run(reads[1]);
    for (int i = 0; i < 4; ++i) CHECK(there.data<float>()[i] == Approx(here.data<float>()[i]));
  };
  compare();
  auto snapshot = s.engine->snapshot().get();
  REQUIRE(snapshot.ok());
  REQUIRE(snapshot->variables.size() == 4);
  for (const auto& [name, value] : snapshot->variables) CHECK(value.space() == Space::kHost);
  const Tensor saved = snapshot->variables.at("there");
  REQUIRE(s.session->run({}, {}, steps).ok());
  CHECK_FALSE(s.run(reads[0]).identical(saved));
  REQUIRE(s.engine->restore(*snapshot).ok());
  CHECK(s.run(reads[0]).identical(saved));
  REQUIRE(s.session->run({}, {}, steps).ok());
  compare();
}

TEST_CASE("gpu: a variable goes where it is used") {
  FakeGpus gpus({.cards = 2});
  GpuStage s(gpus, gpus.options(2, 2));
  CountedEverywhere v(s, {"/gpu:0", "/cpu:0", "/gpu:1", "/gpu:3"});
  float count = 0;
  for (const size_t device : {0, 1, 0, 2, 3, 1, 3, 0}) {
    REQUIRE(s.session->run({}, {}, {v.adds[device]}).ok());
    v.check(device, ++count);
  }
  v.check(1, count);
  v.check(2, count);
}

TEST_CASE("gpu: a variable is used on several devices at once, while snapshots are taken") {
  FakeGpus gpus({.seed = 5, .cards = 2});
  GpuStage s(gpus, gpus.options(2, 1));
  CountedEverywhere v(s, {"/gpu:0", "/cpu:0", "/gpu:1"});
  constexpr int kSteps = many(30);
  std::vector<std::thread> threads;
  std::atomic<int> failed = 0;
  for (const Node* add : v.adds)
    threads.emplace_back([&, add] {
      for (int i = 0; i < kSteps; ++i) failed += !s.session->run({}, {}, {add}).ok();
    });
  float last = 0;
  for (int i = 0; i < 10; ++i) {
    const auto snapshot = s.engine->snapshot().get();
    REQUIRE(snapshot.ok());
    const Tensor& value = snapshot->variables.at("v");
    REQUIRE(value.space() == Space::kHost);
    const float count = value.data<float>()[0];
    CHECK(count >= last);
    CHECK(value.data<float>()[2] == count + 20);
    last = count;
  }
  for (std::thread& t : threads) t.join();
  CHECK(failed == 0);
  v.check(0, 3 * kSteps);
}

TEST_CASE(
    "gpu: what waits for a variable that moves can be cancelled, and ends with a reset, a lost card, the engine") {
  for (int round = 0; round < many(20); ++round) {
    FakeGpus gpus({.seed = static_cast<uint32_t>(round)});
    GpuStage s(gpus, gpus.options());
    CountedEverywhere v(s, {"/gpu:0", "/cpu:0"});
    std::vector<std::future<RunResult>> running;
    for (int i = 0; i < 6; ++i) {
      RunOptions options;
      if (round % 4 == 0) options.deadline = std::chrono::microseconds(50 * i);
      running.push_back(s.session->run_future({}, {}, {v.adds[static_cast<size_t>(i % 2)]}, options));
    }
    if (round % 4 == 1) s.engine->reset_container("");
    if (round % 4 == 2 && gpus.runtime) gpus.runtime->lose(0, 2);
    if (round % 4 == 3) {
      s.session.reset();
      s.engine.reset();
    }
    int ended = 0;
    for (auto& one : running) {
      const RunResult result = one.get();
      ++ended;
      INFO((result.ok() ? "" : result.error().str()));
      if (!result.ok() && round % 4 == 0) CHECK(result.error().code == Code::kDeadlineExceeded);
      if (!result.ok() && round % 4 == 2) CHECK(result.error().code == Code::kUnavailable);
    }
    CHECK(ended == 6);
    if (round % 4 == 0) v.check(0, s.run(v.reads[1]).data<float>()[0]);
  }
}

TEST_CASE("gpu: loops and branches on a GPU") {
  FakeGpus gpus;
  GpuStage s(gpus, gpus.options());
  const Output x = s.placeholder(PartialShape{});
  const std::vector<Output> loop = while_loop(
      s.gpu, {s.gpu.constant(Tensor::scalar(0.f)), x},
      [](const Scope& scope, const std::vector<Output>& v) {
        return scope.op("Less", {v[0], scope.constant(Tensor::scalar(10.f))});
      },
      [](const Scope& scope, const std::vector<Output>& v) {
        return std::vector{scope.op("Add", {v[0], scope.constant(Tensor::scalar(1.f))}),
                           scope.op("Mul", {v[1], scope.constant(Tensor::scalar(2.f))})};
      });
  const std::vector<Output> branch = cond(
      s.gpu, s.gpu.op("Greater", {loop[1], s.gpu.constant(Tensor::scalar(0.f))}),
      [&](const Scope& scope) { return std::vector{scope.op("Sqrt", {loop[1]})}; },
      [&](const Scope& scope) { return std::vector{scope.op("Neg", {loop[1]})}; });
  CHECK(s.run(branch[0], {{x, Tensor::scalar(4.f)}}).data<float>()[0] == 64);
  CHECK(s.run(branch[0], {{x, Tensor::scalar(-1.f)}}).data<float>()[0] == 1024);
}

TEST_CASE("gpu: what is beside a node of the CPU, but in a loop of a GPU, is fused for the GPU") {
  FakeGpus gpus;
  auto engine = Engine::create(gpus.options());
  REQUIRE(engine.ok());
  Graph graph((*engine)->ops());
  const Scope scope(graph);
  const Output x = scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{3}}});
  const Output text = scope.named("text").op("AsString", {x}, {});  // has no kernel for GPUs
  const std::vector<Output> loop = while_loop(
      scope, {scope.constant(0), x},
      [](const Scope& s, const std::vector<Output>& v) {
        return s.op("Less", {v[0], s.constant(2)});
      },
      [&](const Scope& s, const std::vector<Output>& v) {
        const Attrs beside{{"_class", std::vector<std::string>{"loc:@text"}}};
        const Output sum = s.op("AddN", {s.op("Sin", {v[1]}, beside), v[1], x}, beside);
        return std::vector{s.op("AddV2", {v[0], s.constant(1)}), s.op("Tanh", {sum})};
      });
  INFO((scope.ok() ? "" : scope.status().error().str()));
  REQUIRE(scope.ok());
  const FeedList feeds{{x, Tensor::of<float>({1, -2, 0.5f})}};
  SessionOptions options{.default_device = "/gpu:0", .soft_placement = true};
  Session plain(**engine, graph, options);
  options.passes = GraphPasses::all();
  Session fused(**engine, graph, options);
  const auto expected = plain.run(feeds, {loop[1], text}), got = fused.run(feeds, {loop[1], text});
  INFO((got.ok() ? "" : got.error().str()));
  REQUIRE((expected.ok() && got.ok()));
  for (int i = 0; i < 3; ++i) CHECK((*got)[0].data<float>()[i] == Approx((*expected)[0].data<float>()[i]));
}

TEST_CASE("gpu: a loop at home on a CPU puts what a GPU computes in each iteration into lists, and has a gradient") {
  FakeGpus gpus;
  auto engine = GpuStage::make(gpus.options());
  Graph graph(engine->ops());
  const Scope scope(graph);
  const Attrs type{{"element_dtype", DType::kFloat32}};
  const Output x = scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{2}}}),
               shape = scope.constant(Tensor::of<int32_t>({2}));
  const std::vector<Output> loop = while_loop(
      scope, {scope.constant(0), x, scope.op("TensorListReserve", {shape, scope.constant(3)}, type)},
      [](const Scope& s, const std::vector<Output>& v) {
        return s.op("Less", {v[0], s.constant(3)});
      },
      [](const Scope& s, const std::vector<Output>& v) {
        const Output y = s.device("/gpu:0").op("Square", {v[1]});
        return std::vector{s.op("AddV2", {v[0], s.constant(1)}), y, s.op("TensorListSetItem", {v[2], v[0], y})};
      });
  const Output all = scope.op("TensorListStack", {loop[2], shape}, type);
  const auto slopes = gradients(scope, {all}, {x});
  INFO((scope.ok() ? "" : scope.status().error().str()));
  REQUIRE((scope.ok() && slopes.ok()));
  const FeedList feeds{{x, Tensor::of<float>({2, -1})}};
  for (const bool soft : {false, true}) {
    Session session(*engine, graph, {.soft_placement = soft});
    const auto got = session.run(feeds, {all});
    INFO((got.ok() ? "" : got.error().str()));
    REQUIRE(got.ok());
    CHECK((*got)[0].identical(Tensor::of<float>({4, 1, 16, 1, 256, 1}, {3, 2})));
  }
  Session session(*engine, graph, {.soft_placement = true});
  const auto got = session.run(feeds, {(*slopes)[0]});
  INFO((got.ok() ? "" : got.error().str()));
  REQUIRE(got.ok());
  CHECK((*got)[0].identical(Tensor::of<float>({4 + 32 + 1024, -2 - 4 - 8})));
}

TEST_CASE("gpu: what placement by cost has on a CPU is fused for that, and stays there") {
  FakeGpus gpus;
  auto engine = GpuStage::make(gpus.options());
  Graph graph(engine->ops());
  const Scope scope(graph);
  const Output x = scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{3}}});
  const Output sin = scope.named("sin").op("Sin", {x});
  const auto last = [&](const std::string& name, const Attrs& attrs) {
    return scope.named(name).op("Tanh", {scope.named(name + "_sum").op("AddN", {x, sin, x}, attrs)}, attrs);
  };
  const Output free = last("free", {}), beside = last("beside", {{"_class", std::vector<std::string>{"loc:@sin"}}});
  REQUIRE(scope.ok());
  const auto check = [&](const Output& y, double y_on_cpu, double latency_ns, bool on_gpu) {
    const auto costs = std::make_shared<CostModel>();
    for (const auto& [node, cpu, gpu] :
         {std::tuple(sin.node->name(), 1., 1.), {y.node->name() + "_sum", 1., 1e8}, {y.node->name(), y_on_cpu, 1.}}) {
      costs->add(node, "cpu", cpu, 12);
      costs->add(node, "gpu", gpu, 12);
    }
    GraphPasses passes;
    passes.fuse_elementwise = true;
    Session session(
        *engine, graph,
        {.passes = passes, .placing = Placing::kByCost, .costs = costs, .link = LinkRates{.latency_ns = latency_ns}});
    const int64_t before = engine->device_stats()[1].nodes;
    const auto got = session.run({{x, Tensor::of<float>({1, -2, 0})}}, {y});
    INFO((got.ok() ? "" : got.error().str()));
    REQUIRE(got.ok());
    CHECK((*got)[0].data<float>()[0] == Approx(std::tanh(2 + std::sin(1.f))));
    CHECK((engine->device_stats()[1].nodes > before) == on_gpu);
  };
  // One by one all are quicker on the CPU; what is fused has the name of the last, which is not.
  check(free, 1e5, 1e6, false);
  check(beside, 1e5, 1e6, false);
  // The last is to be on the GPU, the sum is not.
  check(free, 1e8, 1, true);
}

TEST_CASE("gpu: shapes are computed at the host, and nothing is copied but what is fed and fetched") {
  FakeGpus gpus;
  GpuStage s(gpus, gpus.options());
  const Output x = s.placeholder(PartialShape{-1, -1, 4});
  const auto ints = [&](std::initializer_list<int32_t> values) { return s.gpu.constant(Tensor::of<int32_t>(values)); };
  const Output shape = s.gpu.op("Shape", {x});
  const auto size = [&](int32_t d) {
    return s.gpu.op("StridedSlice", {shape, ints({d}), ints({d + 1}), ints({1})}, {{"shrink_axis_mask", int64_t{1}}});
  };
  const Output rows = s.gpu.op("Mul", {size(0), size(1)}), four = s.gpu.constant(Tensor::scalar<int32_t>(4));
  const Output to = s.gpu.op("Pack", {rows, s.gpu.op("FloorDiv", {four, s.gpu.constant(Tensor::scalar<int32_t>(2))}),
                                      s.gpu.op("Sub", {size(2), s.gpu.constant(Tensor::scalar<int32_t>(2))})});
  const Output y = s.gpu.op("Reshape", {x, s.gpu.op("Identity", {to})});
  for (int64_t batch : {2, 5, 1}) {
    const int64_t before = gpus.runtime ? gpus.runtime->work_done() : 0;
    const Tensor fed = *Tensor::zeros(DType::kFloat32, Shape{batch, 3, 4});
    CHECK(s.run(y, {{x, fed}}).shape() == Shape{batch * 3, 2, 2});
    if (gpus.runtime) CHECK(gpus.runtime->work_done() - before == 2);
  }
}

TEST_CASE("gpu: a loop that counts by int32 counts at the host") {
  FakeGpus gpus;
  GpuStage s(gpus, gpus.options());
  const Output x = s.placeholder(PartialShape{2}), n = s.scope.op("Placeholder", {}, {{"dtype", DType::kInt32}});
  const std::vector<Output> loop = while_loop(
      s.gpu, {s.gpu.constant(Tensor::scalar<int32_t>(0)), x},
      [&](const Scope& scope, const std::vector<Output>& v) {
        return scope.op("Less", {v[0], n});
      },
      [](const Scope& scope, const std::vector<Output>& v) {
        return std::vector{scope.op("Add", {v[0], scope.constant(Tensor::scalar<int32_t>(1))}),
                           scope.op("Neg", {v[1]})};
      });
  for (int32_t times : {1, 4, 7}) {
    const int64_t before = gpus.runtime ? gpus.runtime->work_done() : 0;
    const Tensor got = s.run(loop[1], {{x, Tensor::of<float>({1, -2})}, {n, Tensor::scalar(times)}});
    CHECK(got.data<float>()[1] == (times % 2 ? 2 : -2));
    // The value goes up, is negated so often, and comes back.
    if (gpus.runtime) CHECK(gpus.runtime->work_done() - before == 2 + times);
  }
}

TEST_CASE("gpu: values cross between the devices of a card, between cards, and the CPU") {
  FakeGpus gpus({.cards = 2});
  GpuStage s(gpus, gpus.options(2, 2));
  CHECK(s.engine->devices().size() == 5);
  const Output x = s.placeholder(PartialShape{-1});
  Output y = x;
  for (int round = 0; round < 2; ++round)
    for (const char* device : {"/gpu:0", "/gpu:1", "/gpu:3", "/cpu:0", "/gpu:2"})
      y = s.scope.device(device).op("Add", {y, s.scope.device(device).constant(Tensor::scalar(1.f))});
  const Tensor got = s.run(y, {{x, Tensor::of<float>({0, 5})}});
  CHECK(got.data<float>()[0] == 10);
  CHECK(got.data<float>()[1] == 15);
}

TEST_CASE("gpu: a snapshot that a lost card's variable keeps from being made names both") {
  FakeGpus gpus({.cards = 2});
  if (!gpus.runtime) return;
  GpuStage s(gpus, gpus.options(2, 1));
  for (const char* device : {"/gpu:0", "/gpu:1"}) {
    const Scope on = s.scope.device(device);
    const Output v =
        on.op("VarHandleOp", {},
              {{"dtype", DType::kFloat32}, {"shape", PartialShape{2}}, {"shared_name", "of" + std::string(device)}});
    const Node* const set = on.node("AssignVariableOp", {v, on.constant(Tensor::of<float>({1, 2}))});
    REQUIRE(s.session->run({}, {}, {set}).ok());
  }
  gpus.runtime->lose(1, 0);
  const auto snapshot = s.engine->snapshot().get();
  REQUIRE_FALSE(snapshot.ok());
  CHECK(snapshot.error().code == Code::kUnavailable);
  CHECK_THAT(snapshot.error().str(), Catch::Contains("variable 'of/gpu:1'") && Catch::Contains("device:gpu:1"));
}

TEST_CASE("gpu: a variable of a lost card can be asked for, set anew and restored elsewhere") {
  FakeGpus gpus({.cards = 2});
  if (!gpus.runtime) return;
  GpuStage s(gpus, gpus.options(2, 1));
  const char* const there = GENERATE("/cpu:0", "/gpu:0");
  INFO(there);
  CountedEverywhere v(s, {"/gpu:1", there});
  CountedEverywhere again(s, {there});
  const Scope on = s.scope.device(there);
  const Output handle = again.reads[0].node->inputs()[0], shape = on.op("VariableShape", {handle}),
               has_value = on.op("VarIsInitializedOp", {handle});
  REQUIRE(s.session->run({}, {}, {v.init}).ok());
  REQUIRE(s.session->run({}, {}, {v.adds[0]}).ok());
  gpus.runtime->lose(1, 0);
  CHECK(s.run(has_value).data<bool>()[0]);
  CHECK(s.run(shape).data<int32_t>()[0] == 3);
  const auto read = s.session->run({v.reads[1]});
  REQUIRE_FALSE(read.ok());
  CHECK(read.error().code == Code::kUnavailable);
  if (GENERATE(true, false)) {
    const RunResult set = s.session->run({}, {}, {again.init});
    INFO((set.ok() ? "" : set.error().str()));
    REQUIRE(set.ok());
  } else {
    REQUIRE(s.engine->restore({{{"v", Tensor::of<float>({0, 10, 20})}}}).ok());
  }
  v.check(1, 0);
  REQUIRE(s.session->run({}, {}, {v.adds[1]}).ok());
  v.check(1, 1);
  CHECK(s.engine->snapshot().get().ok());
}

TEST_CASE("gpu: what one card sends another, which is lost, ends its step and no other") {
  for (int round = 0; round < many(12); ++round) {
    FakeGpus gpus({.seed = static_cast<uint64_t>(round), .cards = 2});
    if (!gpus.runtime) return;
    GpuStage s(gpus, gpus.options(2, 1));
    const Output x = s.placeholder(PartialShape{-1});
    Output y = x;
    for (int i = 0; i < 8; ++i) y = s.scope.device(i % 2 ? "/gpu:1" : "/gpu:0").op("Add", {y, y});
    const Output on_other = s.scope.device("/gpu:1").op("Neg", {x}), at_host = s.scope.op("Neg", {x});
    const FeedList feeds{{x, Tensor::of<float>({1, 2})}};
    CHECK(s.run(y, feeds).data<float>()[1] == 512);
    std::vector<std::future<RunResult>> running;
    for (int i = 0; i < 4; ++i) running.push_back(s.session->run_future(feeds, {y}));
    gpus.runtime->lose(0, static_cast<uint64_t>(round % 6));
    for (auto& one : running)
      if (const RunResult result = one.get(); result.ok()) CHECK((*result)[0].data<float>()[1] == 512);
      else CHECK(result.error().code == Code::kUnavailable);
    const auto lost = s.session->run(feeds, {y});
    REQUIRE_FALSE(lost.ok());
    CHECK(lost.error().code == Code::kUnavailable);
    CHECK(s.run(on_other, feeds).data<float>()[0] == -1);
    CHECK(s.run(at_host, feeds).data<float>()[0] == -1);
  }
}

TEST_CASE("gpu: a trace that outlives its engine keeps none of the card's memory") {
  FakeGpus gpus;
  const auto trace = std::make_shared<Trace>();
  {
    GpuStage s(gpus, gpus.options());
    const Output x = s.placeholder(PartialShape{3});
    // A pass makes a node of the two constants, and what it makes is on the card.
    const Output y = s.gpu.op("Mul", {x, s.gpu.op("Add", {s.gpu.constant(Tensor::of<float>({1, 2, 3})),
                                                          s.gpu.constant(Tensor::of<float>({4, 5, 6}))})});
    REQUIRE(s.scope.ok());
    REQUIRE(s.session->run({{x, Tensor::of<float>({1, 1, 1})}}, {y}, {}, {.trace = trace}).ok());
  }
  CHECK_FALSE(trace->take().empty());
  if (gpus.runtime) CHECK(gpus.runtime->mapped(0) == 0);
}

TEST_CASE("gpu: many steps at once from many threads") {
  FakeGpus gpus({.seed = 3});
  GpuStage s(gpus, gpus.options(1, 2));
  const Output x = s.placeholder(PartialShape{-1});
  Output y = x;
  for (int i = 0; i < 6; ++i) y = s.scope.device(i % 3 ? "/gpu:0" : "/gpu:1").op("Add", {y, y});
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  constexpr int kThreads = 4, kSteps = many(40);
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kSteps; ++i) {
        const auto v = static_cast<float>(t * 100 + i);
        const auto result = s.session->run({{x, Tensor::of<float>({v, 1})}}, {y});
        right += result.ok() && (*result)[0].data<float>()[0] == 64 * v && (*result)[0].data<float>()[1] == 64;
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(right == kThreads * kSteps);
}

TEST_CASE("gpu: memory that runs out fails the step with node, device and what is live") {
  FakeGpus gpus;
  EngineOptions options = gpus.options();
  options.gpus.memory_limit = 8 << 20;
  GpuStage s(gpus, options);
  const Output x = s.placeholder(PartialShape{-1});
  const Output a = s.gpu.op("Exp", {x}), b = s.gpu.op("Exp", {a}), c = s.gpu.op("Add", {a, b}),
               d = s.gpu.op("Add", {s.gpu.op("Sub", {a, b}), c});
  const auto of = [](int64_t n) { return *Tensor::zeros(DType::kFloat32, Shape{n}); };
  const auto failed = s.session->run({{x, of(1 << 20)}}, {d});
  REQUIRE_FALSE(failed.ok());
  CHECK(failed.error().code == Code::kResourceExhausted);
  CHECK_THAT(failed.error().device, Catch::EndsWith("gpu:0"));
  CHECK_THAT(failed.error().message, Contains(a.node->name()) && Contains("float32[1048576]"));
  CHECK(failed.error().step > 0);
  CHECK(s.run(d, {{x, of(1 << 10)}}).elements() == 1 << 10);
  // A constant is copied there when the step is planned.
  const Output large = s.gpu.named("large").constant(of(4 << 20));
  const auto planned = s.session->run({{x, of(1)}}, {s.gpu.op("Add", {x, large})});
  REQUIRE_FALSE(planned.ok());
  CHECK(planned.error().code == Code::kResourceExhausted);
  CHECK(planned.error().node == "large");
  CHECK_THAT(planned.error().device, Catch::EndsWith("gpu:0"));
}

TEST_CASE("gpu: a launch that is refused, and a card that is lost, are errors of their steps") {
  FakeGpus gpus;
  GpuStage s(gpus, gpus.options());
  const Output x = s.placeholder(PartialShape{-1});
  const Output y = s.gpu.named("doubled").op("Add", {x, x}), z = s.gpu.op("Exp", {y});
  const FeedList feeds{{x, Tensor::of<float>({1, 2})}};
  CHECK(s.run(z, feeds).elements() == 2);
  if (!gpus.runtime) return;
  gpus.runtime->fail(gpu::FakeCall::kLaunch, 1, Code::kInternal);
  const auto refused = s.session->run(feeds, {z});
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Code::kInternal);
  CHECK(refused.error().node == y.node->name());
  CHECK(s.run(z, feeds).elements() == 2);

  gpus.runtime->lose(0, 3);
  std::optional<Code> last;
  for (int i = 0; i < 5 && !last; ++i)
    if (const auto result = s.session->run(feeds, {z}); !result.ok()) {
      last = result.error().code;
      CHECK_THAT(result.error().device, Catch::EndsWith("gpu:0"));
    }
  CHECK(last == Code::kUnavailable);
  // What needs no GPU goes on.
  const Output w = s.scope.op("Neg", {x});
  CHECK(s.run(w, feeds).data<float>()[1] == -2);
}

TEST_CASE("gpu: a product that a library refuses since the card is lost is an error of the lost card") {
  struct Failing final : gpu::Blas {
    explicit Failing(std::shared_ptr<gpu::FakeRuntime> r) : runtime(std::move(r)) {}
    Status multiply(const gpu::Compute&, const gpu::Product&) override {
      if (lost) runtime->lose(0, 0);
      return make_error(Code::kInternal, "cublasLtMatmul: CUBLAS_STATUS_EXECUTION_FAILED");
    }
    std::shared_ptr<gpu::FakeRuntime> runtime;
    bool lost = false;
  };
  FakeGpus gpus;
  if (!gpus.runtime) return;
  const auto blas = std::make_shared<Failing>(gpus.runtime);
  auto platform = std::make_shared<GpuPlatform>(*gpus.platform);
  platform->make_blas = [blas](int) -> Result<std::shared_ptr<gpu::Blas>> { return std::shared_ptr<gpu::Blas>(blas); };
  gpus.platform = platform;
  GpuStage s(gpus, gpus.options());
  const Output x = s.placeholder(PartialShape{2, 2});
  const Output y = s.gpu.op("MatMul", {x, x});
  REQUIRE(s.scope.ok());
  for (const bool lost : {false, true}) {
    blas->lost = lost;
    const auto result = s.session->run({{x, *Tensor::zeros(DType::kFloat32, {2, 2})}}, {y});
    REQUIRE_FALSE(result.ok());
    INFO(result.error().str());
    CHECK(result.error().code == (lost ? Code::kUnavailable : Code::kInternal));
    CHECK(result.error().op == "MatMul");
  }
}

TEST_CASE("gpu: deadlines and cancelled steps end while the GPU works, and the engine ends amid work") {
  FakeGpus gpus;
  for (int round = 0; round < many(20); ++round) {
    GpuStage s(gpus, gpus.options());
    const Output x = s.placeholder(PartialShape{-1});
    Output y = x;
    for (int i = 0; i < 20; ++i) y = s.gpu.op("Add", {y, x});
    std::vector<std::future<RunResult>> running;
    for (int i = 0; i < 4; ++i) {
      RunOptions options;
      if (i % 2) options.deadline = std::chrono::microseconds(100 * i);
      running.push_back(s.session->run_future({{x, Tensor::of<float>({1, 2, 3})}}, {y}, {}, options));
    }
    if (round % 2) {
      s.session.reset();
      s.engine.reset();
    }
    for (auto& one : running) {
      const RunResult result = one.get();
      if (result.ok()) CHECK((*result)[0].data<float>()[2] == 63);
      else CHECK((result.error().code == Code::kDeadlineExceeded || result.error().code == Code::kCancelled));
    }
  }
}

TEST_CASE("gpu: numeric checks see what variables and queues of a GPU answer, in loops too") {
  FakeGpus gpus;
  GpuStage s(gpus, gpus.options());
  const Output x = s.placeholder(PartialShape{3});
  const Attrs type{{"dtype", DType::kFloat32}};
  const auto variable = [&](const char* name) {
    return s.gpu.op("VarHandleOp", {},
                    {{"dtype", DType::kFloat32}, {"shape", PartialShape{3}}, {"shared_name", std::string(name)}});
  };
  const Output v = variable("v"), copy = variable("copy");
  const std::vector<DType> types{DType::kFloat32};
  const Output queue = s.gpu.op("_DeviceQueue", {},
                                {{"component_types", types},
                                 {"shapes", std::vector<PartialShape>{PartialShape{3}}},
                                 {"capacity", int64_t{4}},
                                 {"shared_name", std::string("q")}});
  const Node* set = s.gpu.node("AssignVariableOp", {v, x});
  const Node* put = s.gpu.node("QueueEnqueueV2", {queue, x});
  const Output read = s.gpu.named("read").op("ReadVariableOp", {v}, type);
  const Output rows = s.gpu.named("rows").op("ResourceGather", {v, s.gpu.constant(Tensor::of<int32_t>({1, 1}))}, type);
  const Output taken = s.gpu.named("taken").op("QueueDequeueV2", {queue}, {{"component_types", types}});
  const Node* hand_on = s.gpu.node("AssignVariableOp", {copy, read});
  const std::vector<Output> loop = while_loop(
      s.gpu, {s.gpu.constant(0), x},
      [](const Scope& scope, const std::vector<Output>& l) {
        return scope.op("Less", {l[0], scope.constant(3)});
      },
      [&](const Scope& scope, const std::vector<Output>& l) {
        // Not read before the iteration has begun.
        const Output inner = scope.after({l[0]}).named("inner").op("ReadVariableOp", {v}, type);
        return std::vector{scope.op("AddV2", {l[0], scope.constant(1)}), scope.op("Maximum", {l[1], inner})};
      });
  REQUIRE(s.scope.ok());
  const FeedList good{{x, Tensor::of<float>({1, 2, 3})}}, bad{{x, Tensor::of<float>({1, NAN, 3})}};
  const auto run = [&](const FeedList& feeds, const OutputList& fetches, const NodeList& targets = {}) {
    return s.session->run(
        feeds, fetches, targets,
        {.deadline = std::chrono::seconds(60), .check_numerics = true, .trace = std::make_shared<Trace>()});
  };
  REQUIRE(run(good, OutputList{}, {set, put}).ok());
  const RunResult whole = run(good, {read, rows, taken, loop[1]}, {hand_on});
  INFO((whole.ok() ? "" : whole.error().str()));
  REQUIRE(whole.ok());
  CHECK((*whole)[0].identical(Tensor::of<float>({1, 2, 3})));
  CHECK((*whole)[1].identical(Tensor::of<float>({2, 2})));
  CHECK((*whole)[2].identical(Tensor::of<float>({1, 2, 3})));
  CHECK((*whole)[3].identical(Tensor::of<float>({1, 2, 3})));
  REQUIRE(run(bad, OutputList{}, {set, put}).ok());  // what is fed is the caller's
  const auto names = [&](const RunResult& result, const char* node) {
    REQUIRE_FALSE(result.ok());
    INFO(result.error().str());
    CHECK(result.error().code == Code::kInvalidArgument);
    CHECK_THAT(result.error().node, Contains(node));
    CHECK_THAT(result.error().message, Contains("output 0 is the first with a NaN or infinity"));
    CHECK_THAT(result.error().device, Contains("gpu:0"));
  };
  names(run({}, {read}), "read");
  names(run({}, {rows}), "rows");
  names(run({}, {taken}), "taken");
  names(run({}, OutputList{}, {hand_on}), "read");
  names(run(good, {loop[1]}), "inner");
}

TEST_CASE("gpu: a deadline that passes while the card works names a node that it works on") {
  // As slow as it is told to be.
  struct Slow final : ComputeKernel {
    explicit Slow(std::shared_ptr<std::atomic<int>> ms) : ms(std::move(ms)) {}
    Status compute(KernelContext& c) override {
      c.device().gpu->stream.enqueue([told = ms] { std::this_thread::sleep_for(std::chrono::milliseconds(*told)); });
      TROUPE_RETURN_IF_ERROR(c.device().gpu->stream.check_launch("slow"));
      c.set_output(0, c.input(0));
      return {};
    }
    const std::shared_ptr<std::atomic<int>> ms;
  };
  if (on_real_gpu()) return;  // work of the host cannot be put into its stream
  FakeGpus gpus;
  const auto ms = std::make_shared<std::atomic<int>>(5);
  EngineOptions options = gpus.options();
  options.register_ops = [ms](OpRegistry& ops, KernelRegistry& kernels) {
    OpDef op("TestSlow");
    ops.add(op.input("x: float32").output("y: float32").doc("Takes its time.").shape(unchanged_shape),
            not_differentiable("it computes nothing"));
    kernels.add("TestSlow", DeviceKind::kCuda, {},
                KernelFactory([ms](const KernelInit&) -> Result<std::unique_ptr<ComputeKernel>> {
                  return std::unique_ptr<ComputeKernel>(new Slow(ms));
                }));
  };
  GpuStage s(gpus, std::move(options));
  const Output x = s.placeholder(PartialShape{3});
  const Output y = s.gpu.named("slow").op("TestSlow", {x});
  REQUIRE(s.scope.ok());
  RunResult result = make_error(Code::kDeadlineExceeded, "");
  // On a busy machine it may pass before the card is asked.
  for (; !result.ok() && result.error().node.empty() && *ms < 20'000; *ms = 2 * *ms)
    result =
        s.session->run({{x, Tensor::of<float>({1, 2, 3})}}, {y}, {}, {.deadline = std::chrono::milliseconds(*ms / 2)});
  REQUIRE_FALSE(result.ok());
  INFO(result.error().str());
  CHECK(result.error().code == Code::kDeadlineExceeded);
  CHECK(result.error().node == "slow");
  CHECK_THAT(result.error().device, Contains("gpu:0"));
  CHECK_THAT(result.error().message, Contains("while it waited for this node"));
}

TEST_CASE("gpu: a user's kernel that sets an output in the wrong memory is an error of its node") {
  struct Misplaces final : ComputeKernel {
    explicit Misplaces(bool at_host) : at_host(at_host) {}
    Status compute(KernelContext& c) override {
      auto made = at_host ? Tensor::zeros(DType::kFloat32, c.input(0).shape())
                          : c.allocate(DType::kFloat32, c.input(0).shape());
      TROUPE_RETURN_IF_ERROR(made.status());
      c.set_output(0, std::move(*made));
      return {};
    }
    const bool at_host;
  };
  FakeGpus gpus;
  EngineOptions options = gpus.options();
  options.register_ops = [](OpRegistry& ops, KernelRegistry& kernels) {
    const auto add = [&](const char* name, bool at_host, KernelRegistry::HostMemory memory) {
      OpDef op(name);
      ops.add(op.input("x: float32").output("y: float32").doc("Zeros.").shape(unchanged_shape),
              not_differentiable("it is constant"));
      kernels.add(name, DeviceKind::kCuda, {},
                  KernelFactory([at_host](const KernelInit&) -> Result<std::unique_ptr<ComputeKernel>> {
                    return std::unique_ptr<ComputeKernel>(new Misplaces(at_host));
                  }),
                  std::move(memory));
    };
    add("TestAtHost", true, {});
    add("TestOnCard", false, {.inputs = {}, .outputs = {-1}});
    add("TestNamed", true, {.inputs = {}, .outputs = {0}});
    add("TestPlain", false, {});
  };
  GpuStage s(gpus, std::move(options));
  const Output x = s.placeholder(PartialShape{3});
  const FeedList feeds{{x, Tensor::of<float>({1, 2, 3})}};
  for (const char* op : {"TestAtHost", "TestOnCard"}) {
    const Output y = s.gpu.named("wrong").op(op, {x});
    for (const Output& fetch : {y, s.gpu.op("Neg", {y}), s.scope.device("/cpu:0").op("Neg", {y})}) {
      REQUIRE(s.scope.ok());
      const auto result = s.session->run(feeds, {fetch});
      REQUIRE_FALSE(result.ok());
      INFO(result.error().str());
      CHECK(result.error().code == Code::kInternal);
      CHECK(result.error().op == op);
      CHECK_THAT(result.error().message, Contains("output 0 is in") && Contains("registered to set it in"));
    }
  }
  for (const char* op : {"TestNamed", "TestPlain"}) CHECK(s.run(s.gpu.op(op, {x}), feeds).shape() == Shape{3});
}

TEST_CASE("gpu: what a kernel knows before is in the host's memory, wherever it would put its output") {
  struct Known final : ComputeKernel {
    explicit Known(bool wrongly) : wrongly(wrongly) {}
    Status compute(KernelContext&) override { return make_error(Code::kInternal, "it ran"); }
    const Tensor* constant() const override { return wrongly ? &wrong : &right; }
    const bool wrongly;
    const Tensor right = Tensor::of<float>({1, 2, 3}), wrong = Tensor::of<float>({1, 2});
  };
  FakeGpus gpus;
  EngineOptions options = gpus.options();
  options.register_ops = [](OpRegistry& ops, KernelRegistry& kernels) {
    for (const char* name : {"KnownThere", "KnownHere"}) {
      ops.add(OpDef(name)
                  .output("y: float32")
                  .attr("wrong: bool = false")
                  .doc("A test's.")
                  .shape([](ShapeContext& c) -> Status {
                    c.set_output(0, PartialShape{3});
                    return {};
                  }),
              not_differentiable("a test's"));
      const KernelFactory make([](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
        return std::unique_ptr<ComputeKernel>(new Known(init.attr<bool>("wrong")));
      });
      if (std::string_view(name) == "KnownThere") kernels.add(name, DeviceKind::kCuda, {}, make);
      else kernels.add(name, DeviceKind::kCuda, {}, make, {{}, {0}});
    }
  };
  GpuStage s(gpus, std::move(options));
  for (const char* name : {"KnownThere", "KnownHere"}) {
    const Output known = s.gpu.op(name, {});
    CHECK(s.run(known).identical(Tensor::of<float>({1, 2, 3})));
    CHECK(s.run(s.gpu.op("Neg", {known})).identical(Tensor::of<float>({-1, -2, -3})));
    CHECK(s.run(s.scope.device("/cpu:0").op("Neg", {known})).identical(Tensor::of<float>({-1, -2, -3})));
    const RunResult wrong = s.session->run({s.gpu.op(name, {}, {{"wrong", true}})});
    REQUIRE_FALSE(wrong.ok());
    CHECK_THAT(wrong.error().message, Contains("output 0 is float32[2], declared as float32[3]"));
  }
}

TEST_CASE("gpu: options that cannot be, and cards that are not there, are errors in one line") {
  FakeGpus gpus;
  const auto code = [&](auto change) {
    EngineOptions options = gpus.options();
    change(options.gpus);
    const auto made = Engine::create(options);
    if (made.ok()) return std::optional<Code>();
    CHECK(made.error().message.find('\n') == std::string::npos);
    return std::optional(made.error().code);
  };
  CHECK(code([](GpuOptions& o) { o.cards = 2; }) == Code::kUnavailable);
  CHECK(code([](GpuOptions& o) { o.cards = -2; }) == Code::kInvalidArgument);
  CHECK(code([](GpuOptions& o) { o.devices_per_card = 0; }) == Code::kInvalidArgument);
  CHECK(code([](GpuOptions& o) { o.memory_fraction = 0; }) == Code::kInvalidArgument);
  CHECK(code([](GpuOptions& o) { o.memory_fraction = NAN; }) == Code::kInvalidArgument);
  CHECK(code([](GpuOptions& o) { o.memory_limit = -1; }) == Code::kInvalidArgument);
  // With one slab for two allocators a step that is fed has no memory for its first result.
  CHECK(code([](GpuOptions& o) { o.memory_limit = 3 << 20; }) == Code::kInvalidArgument);
  CHECK(code([](GpuOptions& o) { o.cards = -1; }) == std::nullopt);
  // CUDA itself: this build lacks it, or this machine a driver or so many cards.
  CHECK(code([](GpuOptions& o) { o = {.cards = 64}; }) == Code::kUnavailable);
  CHECK(code([](GpuOptions& o) { o = {.cards = -1, .devices_per_card = 1}; }) == std::nullopt);
}

}  // namespace troupe::testing
