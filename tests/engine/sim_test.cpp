// SPDX-License-Identifier: Apache-2.0
// Simulated devices: exact times of nodes, transfers and updates, repeatability, memory, errors.
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "plan/op_costs.h"
#include "tests/engine/fixtures.h"
#include "tests/op_library.h"
#include "troupe/control_flow.h"
#include "troupe/optimizers.h"
#include "troupe/session.h"

namespace troupe {
namespace {

Tensor square(int64_t size, float value) {
  const std::vector<float> values(static_cast<size_t>(size * size), value);
  return Tensor::of<float>(std::span(values), {size, size});
}

struct Sim {
  explicit Sim(int count, SimOptions options = {})
      : engine(make(count, std::move(options))), graph(engine->ops()), scope(graph) {
    session = std::make_unique<Session>(*engine, graph,
                                        SessionOptions{.default_device = "/sim:0", .passes = GraphPasses::none()});
  }
  Scope on(int device) const { return scope.device(fmt::format("/sim:{}", device)); }
  /// A float matrix [size, size] that is there from the start.
  Output matrix(int size, float value = 1) const { return on(0).constant(square(size, value)); }
  RunResult run(const std::vector<Output>& fetches, const std::vector<const Node*>& targets = {},
                RunOptions options = {}) {
    INFO((scope.ok() ? "" : scope.status().error().str()));
    REQUIRE(scope.ok());
    return session->run({}, fetches, targets, options);
  }
  /// The virtual time that one step takes.
  int64_t time(const std::vector<Output>& fetches, const std::vector<const Node*>& targets = {}) {
    const int64_t before = engine->sim_now_ns();
    auto r = run(fetches, targets);
    INFO((r.ok() ? "" : r.error().str()));
    REQUIRE(r.ok());
    return engine->sim_now_ns() - before;
  }

  std::unique_ptr<Engine> engine;
  Graph graph;
  Scope scope;
  std::unique_ptr<Session> session;

 private:
  static std::unique_ptr<Engine> make(int count, SimOptions options) {
    if (options.devices.empty()) options.devices.assign(static_cast<size_t>(count), kRates);
    if (options.link.latency_ns == LinkRates{}.latency_ns) options.link = kLink;
    auto engine = Engine::create({.cpu_threads = {1}, .sim = std::move(options), .op_library = testing::op_library()});
    REQUIRE(engine.ok());
    return std::move(*engine);
  }
};

/// Of a product of [n, n] matrices: 2 n^3 operations, which take longer than its 12 n^2 bytes for n > 6.
int64_t product_ns(int64_t n) { return 10 + 2 * n * n * n; }
int64_t bytes_of(int64_t n) { return 4 * n * n; }

TEST_CASE("nodes on a simulated device take the time of their work, one after another") {
  Sim t(1);
  const Output a = t.matrix(8), b = t.on(0).op("MatMul", {a, a}), c = t.on(0).op("MatMul", {a, b});
  const Output d = t.on(0).op("MatMul", {a, a}, {{"transpose_a", true}});
  CHECK(t.time({c, d}) == 3 * product_ns(8));
  CHECK(t.time({b}) == product_ns(8));
  auto value = t.run({c});
  REQUIRE(value.ok());
  CHECK((*value)[0].data<float>()[0] == 64);
  const auto stats = t.engine->device_stats();
  CHECK(stats.back().name == "/job:localhost/replica:0/task:0/device:sim:0");
  CHECK(stats.back().busy_ns == 6 * product_ns(8));
}

TEST_CASE("a node that moves bytes takes the time of the memory") {
  Sim t(1);
  const Output x = t.matrix(16);
  CHECK(t.time({t.on(0).op("Relu", {x})}) == 10 + 2 * bytes_of(16));
}

TEST_CASE("a tensor to another device takes the link's time, and both devices work meanwhile") {
  Sim t(2);
  const Output a = t.matrix(8), b = t.on(0).op("MatMul", {a, a});
  const Output there = t.on(1).op("MatMul", {b, b}), here = t.on(0).op("MatMul", {b, b});
  CHECK(t.time({there, here}) == product_ns(8) + 100 + bytes_of(8) + product_ns(8));
}

TEST_CASE("tensors to different devices leave one after another through the port of the sender") {
  Sim t(3);
  const Output a = t.matrix(8), b = t.on(0).op("MatMul", {a, a});
  std::vector<Output> there;
  for (int i : {1, 2}) there.push_back(t.on(i).op("MatMul", {b, b}));
  CHECK(t.time(there) == product_ns(8) + 100 + 2 * bytes_of(8) + product_ns(8));
}

TEST_CASE("tensors from different devices come in one after another through the port of the receiver") {
  Sim t(3);
  std::vector<Output> parts;
  for (int i : {0, 1}) {
    const Output a = t.on(i).constant(square(8, 1.f));
    parts.push_back(t.on(i).op("MatMul", {a, a}));
  }
  CHECK(t.time({t.on(2).op("MatMul", parts)}) == product_ns(8) + 100 + 2 * bytes_of(8) + product_ns(8));
}

TEST_CASE("of ready nodes those of the greatest priority run first, in all steps on the device") {
  Sim t(2);
  const Output a = t.matrix(8);
  // Two chains on one device; what comes after the second is on another and should start early.
  const Output low = t.on(0).named("low").op("MatMul", {a, a});
  const Output high = t.on(0).named("high").op("MatMul", {a, a}, {{"transpose_a", true}});
  const Output end = t.on(1).op("MatMul", {high, high});
  const int64_t path = product_ns(8) + 100 + bytes_of(8) + product_ns(8);
  const auto time = [&](std::function<int(const Node&)> priority) {
    Session session(*t.engine, t.graph, {.passes = GraphPasses::none(), .priority = std::move(priority)});
    const int64_t before = t.engine->sim_now_ns();
    REQUIRE(session.run({}, std::vector<Output>{low, end}).ok());
    return t.engine->sim_now_ns() - before;
  };
  CHECK(time([](const Node& n) { return n.name() == "high" ? 5 : 0; }) == path);
  CHECK(time([](const Node& n) { return n.name() == "low" ? 5 : 0; }) == product_ns(8) + path);
}

TEST_CASE("steps that start while the clock is held begin at the same time and share a device") {
  Sim t(2);
  const Output a = t.matrix(8), b = t.on(0).op("MatMul", {a, a}), c = t.on(1).op("MatMul", {b, b});
  auto prepared = t.session->prepare({}, {c});
  REQUIRE(prepared.ok());
  std::vector<std::future<void>> ends;
  const int64_t before = t.engine->sim_now_ns();
  {
    const auto hold = t.engine->hold_sim();
    for (int i = 0; i < 4; ++i) {
      auto end = std::make_shared<std::promise<void>>();
      ends.push_back(end->get_future());
      t.session->run_async(*prepared, {}, [end](RunResult r) {
        CHECK(r.ok());
        end->set_value();
      });
    }
    CHECK(t.engine->sim_now_ns() == before);
  }
  for (auto& end : ends) end.get();
  // A pipeline: the second device works while the first goes on with the next step.
  CHECK(t.engine->sim_now_ns() - before == 4 * product_ns(8) + 100 + bytes_of(8) + product_ns(8));
}

TEST_CASE("variables and queues answer in no time, updates take their arithmetic's") {
  Sim t(2);
  nn::Variables variables;
  const Scope s = t.on(0);
  const Output w = variables.read(s, "w", Shape({16, 16}), nn::ones());
  REQUIRE(t.run({}, variables.initializers()).ok());
  CHECK(t.time({w}) == 0);
  const Output handle = variables.handle(s, variables.all()[0]);
  const Output delta = s.constant(square(16, 2.f));
  const Node* add = s.node("AssignAddVariableOp", {handle, delta});
  const int64_t update = t.time({}, {add});
  CHECK(update == std::llround(cost_of(*add).time_ns(kRates)));
  CHECK(update >= 10 + bytes_of(16));
  auto value = t.run({w});
  REQUIRE(value.ok());
  CHECK((*value)[0].data<float>()[7] == 3);

  // A dequeue waits for what another device puts in, at the time at which that is there.
  const std::vector<DType> types = {DType::kFloat32};
  const auto queue = [&](const Scope& at) {
    return at.op("FIFOQueueV2", {}, {{"component_types", types}, {"capacity", int64_t{4}}, {"shared_name", "q"}});
  };
  const Output a = t.matrix(8);
  const Output made = t.on(1).op("MatMul", {t.on(1).constant(square(8, 1.f)), a});
  const Node* enqueue = t.on(1).node("QueueEnqueueV2", {queue(t.on(1)), made});
  const Output taken = s.op("QueueDequeueV2", {queue(s)}, {{"component_types", types}});
  const Output used = s.op("MatMul", {taken, taken});
  REQUIRE(t.scope.ok());
  CHECK(t.time({used}, {enqueue}) == 2 * product_ns(8));
}

/// A random graph of products and sums of [4, 4] matrices, each node on one of `devices`.
std::vector<Output> random_graph(const Scope& scope, uint32_t seed, const std::vector<std::string>& devices) {
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  std::vector<Output> all = {scope.device(devices[0]).constant(square(4, 0.5f))};
  for (int i = 0; i < 60; ++i) {
    const Scope s = scope.device(devices[below(devices.size())]);
    const Output a = all[below(all.size())], b = all[below(all.size())];
    all.push_back(below(2) ? s.op("Tanh", {s.op("MatMul", {a, b})}) : s.op("AddV2", {a, b}));
  }
  return {all.end() - 10, all.end()};
}

TEST_CASE("a schedule is the same every time, and values are those of the CPU") {
  std::vector<std::string> sims, cpus(4, "/cpu:0");
  for (int i = 0; i < 4; ++i) sims.push_back(fmt::format("/sim:{}", i));
  for (uint32_t seed = 0; seed < 5; ++seed) {
    const auto once = [&](std::vector<Tensor>& values) {
      Sim t(4);
      const int64_t first = t.time(random_graph(t.scope, seed, sims));
      std::vector<int64_t> seen = {first};
      auto r = t.run(random_graph(t.scope, seed, sims));
      REQUIRE(r.ok());
      values = std::move(*r);
      for (const DeviceStats& stats : t.engine->device_stats())
        if (stats.name.find("sim") != std::string::npos) seen.push_back(stats.busy_ns);
      seen.push_back(t.engine->sim_now_ns());
      return seen;
    };
    std::vector<Tensor> a, b;
    CHECK(once(a) == once(b));
    Sim t(1);
    auto cpu = t.run(random_graph(t.scope, seed, cpus));
    REQUIRE(cpu.ok());
    for (size_t i = 0; i < a.size(); ++i) {
      CHECK(a[i].identical((*cpu)[i]));
      CHECK(b[i].identical(a[i]));
    }
  }
}

TEST_CASE("without computing, tensors of terabytes have shapes and times and no memory") {
  Sim t(2, {.devices = {{.flops = 1e12, .memory_bandwidth = 1e12, .launch_ns = 0}, {}}, .compute = false});
  const Output side = t.on(0).constant(Tensor::of<int32_t>({1 << 18, 1 << 18}));
  const Output big = t.on(0).op("Fill", {side, t.on(0).constant(1.f)});  // 256 GiB
  const Output product = t.on(0).op("MatMul", {big, big});
  const Output sum = t.on(1).op("Sum", {t.on(1).op("Slice", {product, t.on(1).constant(Tensor::of<int32_t>({0, 0})),
                                                             t.on(1).constant(Tensor::of<int32_t>({1, 4}))}),
                                        t.on(1).constant(Tensor::of<int32_t>({0}))});
  const double side_d = 1 << 18;
  const auto least = static_cast<int64_t>(2 * side_d * side_d * side_d / 1e12 * 1e9);
  auto r = t.run({sum});
  INFO((r.ok() ? "" : r.error().str()));
  REQUIRE(r.ok());
  CHECK((*r)[0].identical(Tensor::of<float>({0, 0, 0, 0})));
  CHECK(t.engine->sim_now_ns() > least);
}

TEST_CASE("without computing, no optimizer's update changes floats, and counters count") {
  const nn::Schedule rate = nn::constant_rate(0.1f);
  for (const nn::Optimizer& optimizer :
       {nn::sgd(rate), nn::momentum(rate), nn::adam(rate), nn::adagrad(rate), nn::rmsprop(rate, 0.9f, 0.5f)}) {
    Sim t(1, {.compute = false});
    const Scope s = t.on(0);
    nn::Variables variables;
    const Output w = variables.read(s, "w", {2, 2}, nn::ones());
    const Node* const update = nn::apply_gradients(s, variables, optimizer, {t.matrix(2)});
    const Node* const rows =
        s.node("ResourceScatterAdd", {variables.handle(s, variables.all()[0]), s.constant(Tensor::of<int32_t>({1})),
                                      s.constant(Tensor::of<float>({5, 5}, {1, 2}))});
    Snapshot begin;
    for (const nn::Variable& v : variables.all())
      begin.variables[v.name] = v.dtype == DType::kFloat32 ? square(2, 3) : Tensor::scalar<int64_t>(7);
    REQUIRE(t.engine->restore(begin).ok());
    CHECK(t.time({w}, {update, rows}) > 0);
    auto end = t.engine->snapshot().get();
    REQUIRE(end.ok());
    CHECK(end->variables.at("global_step").identical(Tensor::scalar<int64_t>(8)));
    begin.variables.erase("global_step");
    for (const auto& [name, value] : begin.variables) {
      INFO(name);
      CHECK(end->variables.at(name).identical(value));
    }
  }
}

TEST_CASE("without computing, an update that puts something out has an output") {
  struct Update final : AnsweringKernel {
    Result<std::vector<Tensor>> answer(Resource&, ResourceRequest& request) override {
      return std::vector<Tensor>{request.inputs[2], Tensor::scalar(3)};
    }
  };
  SimOptions options{.devices = {kRates}, .compute = false};
  const auto engine = Engine::create({.cpu_threads = {1},
                                      .sim = std::move(options),
                                      .op_library = testing::op_library(),
                                      .register_ops = [](OpRegistry& ops, KernelRegistry& kernels) {
                                        for (const char* name : {"UpdateFloats", "UpdateAndCount"}) {
                                          const bool counts = name == std::string_view("UpdateAndCount");
                                          OpDef op(name);
                                          op.input("r: resource")
                                              .input("i: int32")
                                              .input("x: float32")
                                              .output("y: float32")
                                              .output(counts ? "n: int32" : "z: float32");
                                          ops.add(op.doc("A test's.")
                                                      .shape([](ShapeContext& c) -> Status {
                                                        c.set_output(0, PartialShape{2});
                                                        c.set_output(1, PartialShape::scalar());
                                                        return {};
                                                      })
                                                      .updates_variable()
                                                      .stateful(),
                                                  not_differentiable("a test's"));
                                          kernels.add<Update>(name, DeviceKind::kCpu, {});
                                        }
                                      }});
  REQUIRE(engine.ok());
  Graph graph((*engine)->ops());
  const Scope scope(graph);
  Session session(**engine, graph, {.default_device = "/sim:0", .passes = GraphPasses::none()});
  const Output v = scope.op("VarHandleOp", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{2}}});
  const auto result = [&](const char* op) {
    const Node* node = scope.node(op, {v, scope.constant(1), scope.constant(Tensor::of<float>({1, 2}))});
    REQUIRE(scope.ok());
    auto out = session.run(std::vector<Feed>{}, {scope.op("Shape", {node->out(0)}), node->out(0), node->out(1)});
    INFO((out.ok() ? "" : out.error().str()));
    REQUIRE(out.ok());
    CHECK((*out)[0].identical(Tensor::of<int32_t>({2})));
    return *out;
  };
  CHECK(result("UpdateFloats")[1].identical(Tensor::of<float>({0, 0})));
  const auto asked = result("UpdateAndCount");
  CHECK(asked[1].identical(Tensor::of<float>({1, 2})));
  CHECK(asked[2].data<int32_t>()[0] == 3);
}

TEST_CASE("a simulated device runs out of its memory as a real one") {
  Sim t(1, {.devices = {{.memory = 100'000}}});
  const Output a = t.on(0).op("Fill", {t.on(0).constant(Tensor::of<int32_t>({100, 100})), t.on(0).constant(1.f)});
  const Output b = t.on(0).op("Concat", {t.on(0).constant(0), a, a, a});
  auto r = t.run({b});
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().code == Code::kResourceExhausted);
  CHECK(r.error().device == "/job:localhost/replica:0/task:0/device:sim:0");
  CHECK(t.run({a}).ok());
}

TEST_CASE("an error on one simulated device ends the step on all, and the session goes on") {
  Sim t(3);
  const Output a = t.matrix(8), b = t.on(1).op("MatMul", {a, a});
  const Output bad =
      t.on(2).named("bad").op("Reshape", {b, t.on(2).op("Slice", {t.on(2).constant(Tensor::of<int32_t>({7, 7})),
                                                                  t.on(2).constant(Tensor::of<int32_t>({0})),
                                                                  t.on(2).constant(Tensor::of<int32_t>({2}))})});
  const Output rest = t.on(0).op("MatMul", {b, b});
  auto r = t.run({bad, rest});
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().node == "bad");
  CHECK(t.run({b}).ok());  // meanwhile what was under way comes in
  CHECK(t.time({b}) == product_ns(8));
}

TEST_CASE("a loop on a simulated device takes its iterations' time, and one without end meets its deadline") {
  Sim t(1);
  const Scope s = t.on(0);
  const auto count_to = [&](int32_t n) {
    return while_loop(
        s, {s.constant(0)},
        [&](const Scope& in, const auto& v) {
          return in.op("Less", {v[0], in.constant(n)});
        },
        [](const Scope& in, const auto& v) {
          return std::vector<Output>{in.op("AddV2", {v[0], in.constant(1)})};
        })[0];
  };
  const int64_t five = t.time({count_to(5)}), ten = t.time({count_to(10)});
  // Less reads two int32 and writes a bool, LoopCond hands that on, Add reads and writes three int32, Identity moves
  // none.
  const int64_t iteration = (10 + 9) + (10 + 2) + (10 + 12);
  CHECK(ten - five == 5 * iteration);
  const Output forever = while_loop(
      s, {s.constant(0)}, [](const Scope& in, const auto&) { return in.constant(true); },
      [](const Scope& in, const auto& v) { return std::vector<Output>{in.op("Identity", {v[0]})}; })[0];
  auto r = t.run({forever}, {}, {.deadline = std::chrono::milliseconds(50)});
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().code == Code::kDeadlineExceeded);
  CHECK(t.time({count_to(5)}) == five);
}

TEST_CASE("what takes longer than the clock can tell is an error that names the node") {
  for (const DeviceRates& rates : {DeviceRates{.flops = 1e-300}, DeviceRates{.launch_ns = INFINITY}}) {
    Sim t(1, {.devices = {rates}});
    auto r = t.run({t.on(0).named("slow").op("MatMul", {t.matrix(8), t.matrix(8)})});
    REQUIRE_FALSE(r.ok());
    CHECK(r.error().node == "slow");
    CHECK_THAT(r.error().message, Catch::Contains("virtual clock"));
    CHECK(t.engine->sim_now_ns() == 0);
  }
  Sim t(2, {.link = {.bandwidth = 1e-300, .latency_ns = 1}});
  const Output there = t.on(1).named("there").op("Neg", {t.on(0).op("Neg", {t.matrix(8)})});
  CHECK(t.run({there}).error().node == "there");
}

TEST_CASE("rates that are none are refused") {
  for (const DeviceRates& rates : {DeviceRates{.flops = 0}, DeviceRates{.memory_bandwidth = -1},
                                   DeviceRates{.launch_ns = -1}, DeviceRates{.memory = -1}}) {
    auto engine = Engine::create({.sim = {.devices = {rates}}, .op_library = testing::op_library()});
    REQUIRE_FALSE(engine.ok());
    CHECK_THAT(engine.error().message, Catch::Contains("sim:0"));
  }
  CHECK_FALSE(Engine::create({.sim = {.devices = {{}}, .link = {.bandwidth = 0}}}).ok());
  auto none = Engine::create({});
  REQUIRE(none.ok());
  CHECK((*none)->sim_now_ns() == 0);
  CHECK((*none)->hold_sim().use_count() == 0);
}

}  // namespace
}  // namespace troupe
