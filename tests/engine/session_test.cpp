// SPDX-License-Identifier: Apache-2.0
// Sessions on a real engine: feeds, fetches, growth, devices, errors, deadlines, cancellation, concurrency.
#include "troupe/session.h"

#include <catch2/catch.hpp>
#include <thread>

#include "tests/engine/fixtures.h"
#include "tests/repeats.h"
#include "troupe/gradients.h"

namespace troupe {
namespace {

TEST_CASE("a step computes what is fetched from what is fed") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, {-1});
  const Output y = t.scope.op("AddV2", {x, x});
  const Output z = t.scope.op("Mul", {y, x});
  auto r = t.session->run({{x, Tensor::of<float>({1, 2, 3})}}, {z, y});
  REQUIRE(r.ok());
  CHECK((*r)[0].identical(Tensor::of<float>({2, 8, 18})));
  CHECK((*r)[1].identical(Tensor::of<float>({2, 4, 6})));
}

TEST_CASE("any output may be fed, and what lies behind it does not run") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, {});
  const Output y = t.scope.op("Neg", {x});
  const Output z = t.scope.op("Neg", {y});
  auto r = t.session->run({{y, Tensor::scalar(4.f)}}, {z, y});
  REQUIRE(r.ok());
  CHECK((*r)[0].identical(Tensor::scalar(-4.f)));
  CHECK((*r)[1].identical(Tensor::scalar(4.f)));
}

TEST_CASE("names find feeds, fetches and targets") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, {}, "x");
  t.scope.named("y").op("Neg", {x});
  auto r = t.session->run({{"x:0", Tensor::scalar(1.f)}}, {"y"}, {"y"});
  REQUIRE(r.ok());
  CHECK((*r)[0].identical(Tensor::scalar(-1.f)));
  auto missing = t.session->run({{"x", Tensor::scalar(1.f)}}, {"yy"});
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().code == Code::kNotFound);
  CHECK_THAT(missing.error().message, Catch::Contains("yy"));
}

TEST_CASE("a placeholder that is not fed is named, with what it wants") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, {2, -1}, "image");
  auto r = t.session->run(std::vector<Feed>{}, {t.scope.op("Neg", {x})});
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().node == "image");
  CHECK_THAT(r.error().message, Catch::Contains("float32[2,?]"));
}

TEST_CASE("feeds of the wrong dtype or shape are refused with both") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, {2, -1}, "x");
  const Output y = t.scope.op("Neg", {x});
  auto dtype = t.session->run({{x, Tensor::of<int32_t>({1, 2}, Shape{2, 1})}}, {y});
  REQUIRE_FALSE(dtype.ok());
  CHECK_THAT(dtype.error().str(), Catch::Contains("'x:0'") && Catch::Contains("float32") && Catch::Contains("int32"));
  auto shape = t.session->run({{x, Tensor::of<float>({1, 2, 3}, Shape{3, 1})}}, {y});
  REQUIRE_FALSE(shape.ok());
  CHECK_THAT(shape.error().message, Catch::Contains("[2,?]") && Catch::Contains("[3,1]"));
  auto twice =
      t.session->run({{x, Tensor::of<float>({1, 2}, Shape{2, 1})}, {x, Tensor::of<float>({1, 2}, Shape{2, 1})}}, {y});
  REQUIRE_FALSE(twice.ok());
  CHECK(t.session->run({{x, Tensor::of<float>({1, 2}, Shape{2, 1})}}, {y}).ok());
}

TEST_CASE("a graph with a builder's error does not run") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, {2});
  const Output bad = t.scope.op("AddV2", {x, t.scope.constant(Tensor::of<float>({1, 2, 3}))});
  CHECK_FALSE(bad);
  auto r = t.session->run({{x, Tensor::of<float>({1, 2})}}, {x});
  REQUIRE_FALSE(r.ok());
  CHECK_THAT(r.error().message, Catch::Contains("session_test.cpp"));
}

TEST_CASE("the graph may grow between runs") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, {});
  Output y = t.scope.op("Neg", {x});
  REQUIRE(t.session->run({{x, Tensor::scalar(1.f)}}, {y}).ok());
  for (int i = 0; i < 10; ++i) y = t.scope.op("AddV2", {y, x});
  auto r = t.session->run({{x, Tensor::scalar(1.f)}}, {y});
  REQUIRE(r.ok());
  CHECK((*r)[0].identical(Tensor::scalar(9.f)));
}

TEST_CASE("runs of one signature share a plan, also when the graph has grown; others have their own") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, {}), y = t.scope.op("Neg", {x}), z = t.scope.op("Exp", {x});
  const auto plan = [&](std::vector<Output> feeds, std::vector<Output> fetches, std::vector<const Node*> targets = {}) {
    auto prepared = t.session->prepare(feeds, fetches, targets);
    REQUIRE(prepared.ok());
    return *prepared;
  };
  const auto first = plan({x}, {y});
  t.scope.op("Neg", {y});
  CHECK(plan({x}, {y}) == first);
  CHECK(plan({x}, {z}) != first);
  CHECK(plan({x}, {y, z}) != plan({x}, {z, y}));
  CHECK(plan({x}, {}, {y.node}) != first);
  CHECK(plan({y}, {y}) != first);
  CHECK(plan({x}, {}, {y.node}) == plan({x}, {}, {y.node}));
}

TEST_CASE("values cross devices both ways, one pair for each tensor and destination") {
  TestEngine t({1, 1, 1});
  const Output x = t.placeholder(DType::kFloat32, {});
  const Output a = t.scope.device("/cpu:1").op("Neg", {x});
  const Output b = t.scope.device("/cpu:2").op("Mul", {a, a});
  const Output c = t.scope.device("/cpu:0").op("AddV2", {b, a});
  const Output d = t.scope.device("/cpu:1").after(std::vector<Output>{c}).op("Neg", {b});
  for (float v = 0; v < 200; ++v) {
    auto r = t.session->run({{x, Tensor::scalar(v)}}, {c, d});
    REQUIRE(r.ok());
    CHECK((*r)[0].identical(Tensor::scalar(v * v - v)));
    CHECK((*r)[1].identical(Tensor::scalar(-v * v)));
  }
}

TEST_CASE("a device that is not there is an error that lists those there are") {
  TestEngine t({1, 1});
  const Output x = t.placeholder(DType::kFloat32, {});
  const Output y = t.scope.device("/cpu:7").named("far").op("Neg", {x});
  auto r = t.session->run({{x, Tensor::scalar(1.f)}}, {y});
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().node == "far");
  CHECK_THAT(r.error().message, Catch::Contains("/cpu:7") && Catch::Contains("device:cpu:1"));
}

TEST_CASE("with soft placement a node whose device is not there goes to the nearest") {
  TestEngine t({1, 1});
  Session soft(*t.engine, t.graph, {.soft_placement = true});
  const Output x = t.placeholder(DType::kFloat32, PartialShape::scalar());
  for (const char* device : {"/job:worker/task:3/device:CPU:1", "/device:GPU:0", "/cpu:7"}) {
    const auto r = soft.run({{x, Tensor::scalar(1.f)}}, {t.scope.device(device).op("Neg", {x})});
    INFO(device);
    CHECK(r.ok());
  }
  CHECK(t.engine->device_stats()[1].nodes > 0);
  CHECK_FALSE(soft.run(std::vector<Feed>{}, {t.scope.device("/cpu:x").op("Neg", {x})}).ok());
}

TEST_CASE("all nodes without a kernel are named at once") {
  auto engine = Engine::create({.register_ops = [](OpRegistry& ops, KernelRegistry&) {
    for (const char* name : {"Lacking", "Wanting"})
      ops.add(OpDef(name).input("x: float32").output("y: float32").doc("No kernel.").shape(unchanged_shape),
              not_differentiable("a test's"));
  }});
  REQUIRE(engine.ok());
  Graph graph((*engine)->ops());
  const Scope scope(graph);
  const Output a = scope.named("a").op("Lacking", {scope.constant(1.f)});
  const Output b = scope.named("b").op("Wanting", {a});
  Session session(**engine, graph);
  const auto r = session.run(std::vector<Feed>{}, {b});
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().code == Code::kUnimplemented);
  CHECK_THAT(r.error().message, Catch::Contains("Lacking 'a'") && Catch::Contains("Wanting 'b'"));
  CHECK(session.run(std::vector<Feed>{}, {a}).error().node == "a");
}

TEST_CASE("an error of a kernel names op, node, device and step, and the session goes on") {
  TestEngine t({1, 1});
  const Output x = t.placeholder(DType::kInt32, {});
  const Output y = t.scope.device("/cpu:1").named("quotient").op("FloorDiv", {t.scope.constant(1), x});
  const Output z = t.scope.device("/cpu:0").op("Neg", {y});
  auto r = t.session->run({{x, Tensor::scalar(0)}}, {z});
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().op == "FloorDiv");
  CHECK(r.error().node == "quotient");
  CHECK_THAT(r.error().device, Catch::EndsWith("cpu:1"));
  CHECK(r.error().step.has_value());
  CHECK(t.session->run({{x, Tensor::scalar(1)}}, {z}).ok());
}

TEST_CASE("a kernel that gets no memory beside tensors ends the step, and the session goes on") {
  class Lists final : public ComputeKernel {
    Status compute(KernelContext& c) override {
      if (c.input(0).data<float>()[0] > 0) throw std::bad_alloc();
      c.set_output(0, c.input(0));
      return {};
    }
  };
  auto engine = Engine::create({.register_ops = [](OpRegistry& ops, KernelRegistry& kernels) {
    ops.add(OpDef("Lists").input("x: float32").output("y: float32").doc("Lists.").shape(unchanged_shape),
            not_differentiable("a test's"));
    kernels.add<Lists>("Lists", DeviceKind::kCpu, {});
  }});
  REQUIRE(engine.ok());
  Graph graph((*engine)->ops());
  const Scope scope(graph);
  const Output x = scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}});
  const Output fed = scope.named("fed").op("Lists", {x}),
               folded = scope.named("folded").op("Lists", {scope.constant(1.f)});
  Session session(**engine, graph);
  for (const Output& y : {fed, folded}) {
    const auto r = session.run({{x, Tensor::scalar(1.f)}}, {y});
    REQUIRE_FALSE(r.ok());
    CHECK(r.error().code == Code::kResourceExhausted);
    CHECK(r.error().node == y.node->name());
  }
  CHECK(session.run({{x, Tensor::scalar(-1.f)}}, {fed}).ok());
}

TEST_CASE("a use of a resource that gets no memory beside tensors says so, and the resource goes on") {
  class Crowded final : public ResourceKernel {
    void execute(Resource&, ResourceRequest request) override {
      const bool fails = request.inputs[1].data<float>()[0] > 0;
      if (fails) throw std::bad_alloc();
      request.reply(std::vector<Tensor>{});
    }
  };
  auto engine = Engine::create({.register_ops = [](OpRegistry& ops, KernelRegistry& kernels) {
    ops.add(
        OpDef("Crowded").input("r: resource").input("x: float32").doc("Crowded.").stateful().shape([](ShapeContext&) {
          return Status();
        }),
        not_differentiable("a test's"));
    kernels.add<Crowded>("Crowded", DeviceKind::kCpu, {});
  }});
  REQUIRE(engine.ok());
  Graph graph((*engine)->ops());
  const Scope scope(graph);
  const Output handle = scope.op(
      "VarHandleOp", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape()}, {"shared_name", std::string("v")}});
  const Output x = scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}});
  const Node* use = scope.named("use").node("Crowded", {handle, x});
  Session session(**engine, graph);
  const auto failed = session.run({{x, Tensor::scalar(1.f)}}, std::vector<Output>{}, {use});
  REQUIRE_FALSE(failed.ok());
  CHECK(failed.error().code == Code::kResourceExhausted);
  CHECK(failed.error().node == "use");
  CHECK(session.run({{x, Tensor::scalar(-1.f)}}, std::vector<Output>{}, {use}).ok());
}

TEST_CASE("lists and arrays of more elements than memory may hold are refused") {
  TestEngine t({1}, 1 << 20);
  const Scope& s = t.scope;
  const Output n = t.placeholder(DType::kInt32, PartialShape::scalar());
  const Output list = s.op("TensorListReserve", {s.constant(-1), n}, {{"element_dtype", DType::kFloat32}});
  const Output array = s.op("TensorArrayV3", {n}, {{"dtype", DType::kFloat32}});
  for (const Output& made : {s.op("TensorListLength", {list}), s.op("TensorArraySizeV3", {array, s.constant(0.f)})}) {
    const auto r = t.session->run({{n, Tensor::scalar(1'000'000)}}, {made});
    REQUIRE_FALSE(r.ok());
    CHECK(r.error().code == Code::kResourceExhausted);
    CHECK_THAT(r.error().message, Catch::Contains("1000000 elements"));
    CHECK(t.session->run({{n, Tensor::scalar(10)}}, {made}).ok());
  }
}

TEST_CASE("out of memory against a limit is an error, and smaller steps still run") {
  TestEngine t({1}, 1 << 20);
  const Output n = t.placeholder(DType::kInt32, {1});
  const Output big = t.scope.named("big").op("Fill", {n, t.scope.constant(1.f)});
  const Output sum = t.scope.op("Neg", {big});
  auto r = t.session->run({{n, Tensor::of<int32_t>({1 << 20})}}, {sum});
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().code == Code::kResourceExhausted);
  CHECK(r.error().node == "big");
  CHECK(t.session->run({{n, Tensor::of<int32_t>({16})}}, {sum}).ok());
  CHECK(t.engine->device_stats()[0].memory.in_use < (1 << 16));
  CHECK(t.engine->device_stats()[0].memory.cached > 0);
  t.engine->trim_memory();
  CHECK(t.engine->device_stats()[0].memory.cached == 0);
  CHECK(t.session->run({{n, Tensor::of<int32_t>({16})}}, {sum}).ok());
}

TEST_CASE("numeric checks name the first node that made a NaN") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, {});
  const Output a = t.scope.named("log").op("Log", {x});
  const Output b = t.scope.named("after").op("Neg", {a});
  CHECK(t.session->run({{x, Tensor::scalar(-1.f)}}, {b}).ok());
  auto r = t.session->run({{x, Tensor::scalar(-1.f)}}, {b}, {}, {.check_numerics = true});
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().node == "log");
}

TEST_CASE("variables keep their values between steps and between sessions") {
  TestEngine t;
  const Output handle = t.variable("v", DType::kFloat32, {});
  const Node* init = t.scope.node("AssignVariableOp", {handle, t.scope.constant(3.f)});
  const Output read = t.scope.op("ReadVariableOp", {handle}, {{"dtype", DType::kFloat32}});
  const Node* add = t.scope.node("AssignAddVariableOp", {handle, t.scope.constant(2.f)});

  auto before = t.session->run(std::vector<Feed>{}, {read});
  REQUIRE_FALSE(before.ok());
  CHECK(before.error().code == Code::kFailedPrecondition);
  CHECK_THAT(before.error().message, Catch::Contains("v"));

  REQUIRE(t.session->run(std::vector<Feed>{}, {}, {init}).ok());
  Session other(*t.engine, t.graph);
  for (int i = 0; i < 5; ++i) REQUIRE((i % 2 ? other : *t.session).run(std::vector<Feed>{}, {}, {add}).ok());
  auto r = other.run(std::vector<Feed>{}, {read});
  REQUIRE(r.ok());
  CHECK((*r)[0].identical(Tensor::scalar(13.f)));

  auto snapshot = t.engine->snapshot().get();
  REQUIRE(snapshot.ok());
  CHECK(snapshot->variables.at("v").identical(Tensor::scalar(13.f)));
  snapshot->variables["v"] = Tensor::scalar(-1.f);
  REQUIRE(t.engine->restore(*snapshot).ok());
  CHECK((*other.run(std::vector<Feed>{}, {read}))[0].identical(Tensor::scalar(-1.f)));
}

TEST_CASE("many concurrent steps update one variable and none is lost") {
  TestEngine t({1, 1});
  const Output handle = t.variable("count", DType::kInt64, {});
  REQUIRE(t.session
              ->run(std::vector<Feed>{}, {}, {t.scope.node("AssignVariableOp", {handle, t.scope.constant(int64_t{0})})})
              .ok());
  std::vector<const Node*> adds;
  for (const char* device : {"/cpu:0", "/cpu:1"})
    adds.push_back(t.scope.device(device).node("AssignAddVariableOp", {handle, t.scope.constant(int64_t{1})}));
  constexpr int kThreads = 4, kSteps = 200;
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      for (int k = 0; k < kSteps; ++k)
        if (!t.session->run(std::vector<Feed>{}, {}, {adds[static_cast<size_t>(i % 2)]}).ok()) ++failures;
    });
  for (auto& thread : threads) thread.join();
  CHECK(failures == 0);
  auto r = t.session->run(std::vector<Feed>{}, {t.scope.op("ReadVariableOp", {handle}, {{"dtype", DType::kInt64}})});
  REQUIRE(r.ok());
  CHECK((*r)[0].identical(Tensor::scalar<int64_t>(kThreads * kSteps)));
}

TEST_CASE("thousands of steps that are asked for at once all end, with their own values") {
  TestEngine t({1, 1});
  const Output x = t.placeholder(DType::kFloat32, {96, 96});
  const Output zeros = t.scope.constant(*Tensor::zeros(DType::kFloat32, {96, 96}));
  // Products are expensive, and values go there and back between two devices.
  const Scope here = t.scope.device("/cpu:0"), there = t.scope.device("/cpu:1");
  const Output first = here.op("AddV2", {here.op("MatMul", {x, zeros}), x});
  const Output second = there.op("AddV2", {there.op("MatMul", {first, zeros}), there.op("Neg", {first})});
  const Output last = here.op("AddV2", {here.op("MatMul", {second, zeros}), second});
  const int steps = many(3000);
  std::vector<std::future<RunResult>> results;
  std::vector<CancelToken> tokens(static_cast<size_t>(steps));
  for (int i = 0; i < steps; ++i) {
    Tensor value = *Tensor::make(DType::kFloat32, {96, 96});
    std::fill_n(value.mutable_data<float>(), value.elements(), static_cast<float>(i));
    results.push_back(t.session->run_future({{x, value}}, {last}, {}, {.cancel = tokens[static_cast<size_t>(i)]}));
    if (i % 7 == 3) tokens[static_cast<size_t>(i / 2)].cancel();
  }
  for (int i = 0; i < steps; ++i) {
    const auto r = results[static_cast<size_t>(i)].get();
    if (r.ok()) CHECK((*r)[0].data<float>()[95] == static_cast<float>(-i));
    else CHECK(r.error().code == Code::kCancelled);
  }
}

TEST_CASE("a deadline ends a step that waits for a queue, and the queue loses nothing") {
  TestEngine t({1, 1});
  const Output queue = t.queue("q", DType::kInt32);
  const Output got = t.dequeue(queue, DType::kInt32);
  const Output x = t.placeholder(DType::kInt32, {});
  const Node* put = t.scope.node("QueueEnqueueV2", {queue, x});

  auto late = t.session->run(std::vector<Feed>{}, {got}, {}, {.deadline = std::chrono::milliseconds(5)});
  REQUIRE_FALSE(late.ok());
  CHECK(late.error().code == Code::kDeadlineExceeded);
  REQUIRE(t.session->run({{x, Tensor::scalar(7)}}, {}, {put}).ok());
  auto r = t.session->run(std::vector<Feed>{}, {got});
  REQUIRE(r.ok());
  CHECK((*r)[0].identical(Tensor::scalar(7)));
}

TEST_CASE("a cancelled step ends; a token that was used up refuses the next") {
  TestEngine t;
  const Output queue = t.queue("q", DType::kInt32);
  const Output got = t.dequeue(queue, DType::kInt32);
  CancelToken token;
  auto waiting = t.session->run_future({}, {got}, {}, {.cancel = token});
  token.cancel();
  auto r = waiting.get();
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().code == Code::kCancelled);
  auto next = t.session->run(std::vector<Feed>{}, {got}, {}, {.cancel = token});
  REQUIRE_FALSE(next.ok());
  CHECK(next.error().code == Code::kCancelled);
}

TEST_CASE("a step is cancelled where it waits, also after another container was reset") {
  TestEngine t;
  const Output got = t.dequeue(t.queue("q", DType::kInt32), DType::kInt32);
  const Node* assign = t.scope.node("AssignVariableOp", {t.variable("v", DType::kInt32, {}), t.scope.constant(1)});
  CancelToken token;
  auto waiting = t.session->run_future({}, {got}, {}, {.cancel = token});
  // The device takes up one step after the other: when this one has ended, the first waits.
  REQUIRE(t.session->run(std::vector<Feed>{}, {}, {assign}).ok());
  t.engine->reset_container("other");  // makes the device look up hosts anew
  REQUIRE(t.session->run(std::vector<Feed>{}, {}, {assign}).ok());
  token.cancel();
  auto r = waiting.get();
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().code == Code::kCancelled);
}

TEST_CASE("a dequeue from a closed queue is out of range, also while it waits") {
  TestEngine t({1, 1});
  const Output queue = t.queue("q", DType::kInt32);
  const Output got = t.scope.device("/cpu:1")
                         .node("QueueDequeueV2", {queue}, {{"component_types", std::vector<DType>{DType::kInt32}}})
                         ->out();
  auto waiting = t.session->run_future({}, {got});
  REQUIRE(t.session->run(std::vector<Feed>{}, {}, {t.scope.node("QueueCloseV2", {queue})}).ok());
  auto r = waiting.get();
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().code == Code::kOutOfRange);
  CHECK_THAT(r.error().message, Catch::Contains("q"));
}

TEST_CASE("resetting a container answers who waits in it") {
  TestEngine t;
  const Output queue = t.queue("q", DType::kInt32);
  const Output got = t.dequeue(queue, DType::kInt32);
  const Output x = t.placeholder(DType::kInt32, {});
  const Node* put = t.scope.node("QueueEnqueueV2", {queue, x});
  REQUIRE(t.session->run({{x, Tensor::scalar(1)}}, {}, {put}).ok());
  REQUIRE(t.session->run(std::vector<Feed>{}, {got}).ok());
  // The step either waits in the old queue, and then hears that it was closed, or comes late and finds a new one.
  auto waiting = t.session->run_future({}, {got});
  t.engine->reset_container("");
  REQUIRE(t.session->run({{x, Tensor::scalar(2)}}, {}, {put}).ok());
  auto r = waiting.get();
  CHECK((r.ok() ? (*r)[0].identical(Tensor::scalar(2)) : r.error().op == "QueueDequeueV2"));
}

TEST_CASE("a step that waits for what is reset or removed is told what that was") {
  TestEngine t;
  const std::vector<DType> types = {DType::kInt32};
  const Node* other = t.scope.node("NoOp", {});
  const auto told = [&](const Output& waits, const std::function<void()>& ends) {
    auto waiting = t.session->run_future({}, {waits});
    // The device takes up one step after the other: when this one has ended, the first waits.
    REQUIRE(t.session->run(other).ok());
    ends();
    return waiting.get();
  };
  const auto in = [&](const std::string& container) {
    return t.dequeue(t.scope.op("FIFOQueueV2", {}, {{"component_types", types}, {"container", container}}), types[0]);
  };
  refused(told(in(""), [&] { t.engine->reset_container(""); }), Code::kCancelled, "the default container was reset");
  refused(told(in("c"), [&] { t.engine->reset_container("c"); }), Code::kCancelled, "container 'c' was reset");
  const auto silent = Dataset::from_function(
      [](const std::stop_token& stop) -> Result<std::optional<Element>> {
        std::mutex mutex;
        std::unique_lock lock(mutex);
        std::condition_variable_any().wait(lock, stop, [] { return false; });
        return std::optional<Element>();
      },
      types, {PartialShape::scalar()});
  REQUIRE(silent.ok());
  const std::vector<PartialShape> shapes = {PartialShape::scalar()};
  const Output iterator =
      t.scope.op("IteratorV2", {}, {{"shared_name", "silent"}, {"output_types", types}, {"output_shapes", shapes}});
  const Output next = t.scope.op("IteratorGetNext", {iterator}, {{"output_types", types}, {"output_shapes", shapes}});
  REQUIRE(t.engine->add_dataset("silent", *silent).ok());
  const auto removed = told(next, [&] { REQUIRE(t.engine->remove_dataset("silent").ok()); });
  refused(removed, Code::kCancelled, "dataset 'silent' was removed");
}

TEST_CASE("an iterator feeds steps until its end, and can start again") {
  TestEngine t;
  auto data = Dataset::from_tensors({Tensor::of<int32_t>({1, 2, 3, 4})});
  REQUIRE(data.ok());
  REQUIRE(t.engine->add_dataset("numbers", data->batch(2)).ok());
  CHECK_FALSE(t.engine->add_dataset("numbers", *data).ok());
  const std::vector<DType> types = {DType::kInt32};
  const std::vector<PartialShape> shapes = {{-1}};
  const Output it = t.scope.op("IteratorV2", {},
                               {{"shared_name", std::string("numbers")},
                                {"container", std::string()},
                                {"output_types", types},
                                {"output_shapes", shapes}});
  const Output next = t.scope.op("IteratorGetNext", {it}, {{"output_types", types}, {"output_shapes", shapes}});
  for (int round = 0; round < 2; ++round) {
    for (const Tensor& expected : {Tensor::of<int32_t>({1, 2}), Tensor::of<int32_t>({3, 4})}) {
      auto r = t.session->run(std::vector<Feed>{}, {next});
      INFO((r.ok() ? "" : r.error().str()));
      REQUIRE(r.ok());
      CHECK((*r)[0].identical(expected));
    }
    auto end = t.session->run(std::vector<Feed>{}, {next});
    REQUIRE_FALSE(end.ok());
    CHECK(end.error().code == Code::kOutOfRange);
    REQUIRE(t.engine->restart_dataset("numbers").ok());
  }
  REQUIRE(t.engine->remove_dataset("numbers").ok());
  CHECK(t.session->run(std::vector<Feed>{}, {next}).error().code == Code::kNotFound);
  CHECK(t.engine->remove_dataset("numbers").error().code == Code::kNotFound);
  CHECK(t.engine->restart_dataset("numbers").error().code == Code::kNotFound);
  REQUIRE(t.engine->add_dataset("numbers", data->batch(4)).ok());
  CHECK((*t.session->run(std::vector<Feed>{}, {next}))[0].elements() == 4);
}

TEST_CASE("a continuation starts the next step") {
  TestEngine t;
  const Output handle = t.variable("n", DType::kInt32, {});
  REQUIRE(
      t.session->run(std::vector<Feed>{}, {}, {t.scope.node("AssignVariableOp", {handle, t.scope.constant(0)})}).ok());
  const Node* add = t.scope.node("AssignAddVariableOp", {handle, t.scope.constant(1)});
  const Output read =
      t.scope.after(std::vector<const Node*>{add}).op("ReadVariableOp", {handle}, {{"dtype", DType::kInt32}});
  auto prepared = t.session->prepare({}, {read});
  REQUIRE(prepared.ok());
  std::promise<int> last;
  std::function<void(RunResult)> next = [&](RunResult r) {
    const int n = r.ok() ? (*r)[0].data<int32_t>()[0] : -1;
    if (n < 0 || n == 1000) last.set_value(n);
    else t.session->run_async(*prepared, {}, next);
  };
  t.session->run_async(*prepared, {}, next);
  CHECK(last.get_future().get() == 1000);
}

TEST_CASE("buffers that nobody else holds are written in place") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, {-1});
  Output y = t.scope.op("Neg", {x});
  for (int i = 0; i < 20; ++i) y = t.scope.op("Neg", {y});
  constexpr int64_t kFloats = 1 << 16;
  auto fed = Tensor::zeros(DType::kFloat32, Shape{kFloats});
  REQUIRE(t.session->run({{x, *fed}}, {y}).ok());
  // The fed tensor is the caller's, so one buffer is made; the other twenty nodes use it again.
  CHECK(t.engine->device_stats()[0].memory.peak < 2 * kFloats * 4);
}

}  // namespace
}  // namespace troupe
