// SPDX-License-Identifier: Apache-2.0
// Sessions that place by constraints and by cost, and what they measure.
#include <catch2/catch.hpp>

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <set>
#include <sstream>

#include "tests/actors/simulation.h"
#include "tests/engine/fixtures.h"
#include "tests/op_library.h"
#include "troupe/control_flow.h"
#include "troupe/gradients.h"
#include "troupe/optimizers.h"
#include "troupe/session.h"

namespace troupe {
namespace {

using Catch::Contains;

/// A training step of towers of dense layers on one input.
struct Towers {
  explicit Towers(EngineOptions options, int towers = 4)
      : engine(*Engine::create(std::move(options))), graph(engine->ops()) {
    const Scope s(graph);
    x = s.named("x").op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{16, 32}}});
    std::vector<Output> ends;
    for (int i = 0; i < towers; ++i) {
      const Scope tower = s.scope(fmt::format("tower{}", i));
      Output h = x;
      for (int k = 0; k < 2; ++k) h = nn::relu(tower, nn::dense(tower, variables, h, 32, fmt::format("t{}_{}", i, k)));
      ends.push_back(nn::dense(tower, variables, h, 4, fmt::format("t{}", i)));
    }
    const Output labels = s.constant(Tensor::zeros(DType::kInt32, {16}).value());
    loss = nn::sparse_softmax_cross_entropy(s, s.op("AddN", ends), labels);
    update = nn::minimize(s, variables, nn::sgd(nn::constant_rate(0.1f)), loss);
    INFO((s.ok() ? "" : s.status().error().str()));
    REQUIRE(s.ok());
  }
  static Tensor input() {
    Tensor t = Tensor::make(DType::kFloat32, {16, 32}).value();
    for (int64_t i = 0; i < t.elements(); ++i)
      t.mutable_data<float>()[i] = static_cast<float>(i * 31 % 17) * 0.1f - 0.8f;
    return t;
  }
  /// The losses of some steps from the start.
  std::vector<float> train(Session& session, int steps) {
    std::vector<float> out;
    REQUIRE(session.run({}, std::vector<Output>{}, variables.initializers(), {.random_step = 0}).ok());
    for (int i = 0; i < steps; ++i) {
      auto r = session.run({{x, input()}}, {loss}, {update});
      INFO((r.ok() ? "" : r.error().str()));
      REQUIRE(r.ok());
      out.push_back((*r)[0].data<float>()[0]);
    }
    return out;
  }

  /// The products of the layers, forward.
  std::vector<const Node*> products() const {
    std::vector<const Node*> out;
    for (int id = 0; id < graph.size(); ++id)
      if (graph.node(id).op().name() == "MatMul" && graph.node(id).name().starts_with("tower"))
        out.push_back(&graph.node(id));
    return out;
  }

  std::unique_ptr<Engine> engine;
  Graph graph;
  nn::Variables variables;
  Output x, loss;
  const Node* update = nullptr;
};

EngineOptions simulated(int count) {
  EngineOptions out{.cpu_threads = {1}, .op_library = testing::op_library()};
  out.sim.devices.assign(static_cast<size_t>(count), kRates);
  out.sim.link = kLink;
  return out;
}

TEST_CASE("a session placed by cost computes what one placed by hand does, on more devices") {
  Towers t({.cpu_threads = {1, 1}});
  Session by_hand(*t.engine, t.graph);
  const std::vector<float> expected = t.train(by_hand, 4);
  CHECK(expected.back() < expected.front());
  CHECK(t.engine->device_stats()[1].nodes == 0);
  // Dear enough for two devices.
  CostModel dear;
  for (const Node* node : t.products()) dear.add(node->name(), "cpu", 1e6, 1000);
  Session by_cost(*t.engine, t.graph, {.placing = Placing::kByCost, .costs = std::make_shared<const CostModel>(dear)});
  const std::vector<float> got = t.train(by_cost, 4);
  CHECK(t.engine->device_stats()[1].nodes > 0);
  for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(expected[i]));
}

TEST_CASE("on simulated devices a step placed by cost takes what was predicted") {
  for (const int devices : {1, 3, 4}) {
    Towers t(simulated(devices));
    Session session(*t.engine, t.graph,
                    {.default_device = "/sim:0", .passes = GraphPasses::none(), .placing = Placing::kByCost});
    t.train(session, 1);
    const int64_t before = t.engine->sim_now_ns();
    REQUIRE(session.run({{t.x, Towers::input()}}, {t.loss}, {t.update}).ok());
    const auto took = static_cast<double>(t.engine->sim_now_ns() - before);
    PlacementOptions options;
    options.link = kLink;
    for (int d = 0; d < devices; ++d)
      options.devices.push_back({t.engine->devices()[static_cast<size_t>(1 + d)], kRates});
    const auto placed = place(t.graph, std::span(&t.x, 1), std::span(&t.loss, 1), std::span(&t.update, 1), options);
    REQUIRE(placed.ok());
    INFO(devices << " devices");
    CHECK(took == Approx(placed->step_ns).epsilon(0.02));
    if (devices > 1) CHECK(t.engine->device_stats()[2].nodes > 0);
    CHECK(t.engine->device_stats()[0].nodes == 0);  // the CPU is of another sort
  }
}

namespace {

/// A recurrent network of `size` units and its gradient, over as many steps as are fed or, with 0, `known`.
struct Recurrent {
  explicit Recurrent(int32_t known, int size = 64) : engine(*Engine::create(simulated(2))), graph(engine->ops()) {
    const Scope s(graph);
    steps = known ? s.constant(known)
                  : s.op("Placeholder", {}, {{"dtype", DType::kInt32}, {"shape", PartialShape::scalar()}});
    const auto matrix = [&](float value) {
      const std::vector<float> values(static_cast<size_t>(size * size), value);
      return s.constant(Tensor::of<float>(std::span(values), {size, size}));
    };
    const Output x = matrix(0.01f), w = matrix(0.02f);
    const auto out = while_loop(
        s, {s.constant(0), x},
        [&](const Scope& in, const std::vector<Output>& v) {
          return in.op("Less", {v[0], steps});
        },
        [&](const Scope& in, const std::vector<Output>& v) {
          return std::vector{in.op("AddV2", {v[0], in.constant(1)}), in.op("Tanh", {in.op("MatMul", {v[1], w})})};
        });
    y = out[1];
    dw = gradients(s, {y}, {w}).value()[0];
    INFO((s.ok() ? "" : s.status().error().str()));
    REQUIRE(s.ok());
  }
  std::unique_ptr<Session> open(std::shared_ptr<const CostModel> costs = {}) {
    return std::make_unique<Session>(*engine, graph,
                                     SessionOptions{.default_device = "/sim:0",
                                                    .passes = GraphPasses::none(),
                                                    .placing = Placing::kByCost,
                                                    .costs = std::move(costs)});
  }
  /// The virtual time of a step that runs the loop so often.
  double run(Session& session, int32_t iterations) {
    const int64_t before = engine->sim_now_ns();
    std::vector<Feed> feeds;
    if (steps.node->op().name() == "Placeholder") feeds.push_back({steps, Tensor::scalar(iterations)});
    auto r = session.run(feeds, {y, dw});
    INFO((r.ok() ? "" : r.error().str()));
    REQUIRE(r.ok());
    return static_cast<double>(engine->sim_now_ns() - before);
  }
  Placement predict(const CostModel* costs = nullptr) {
    PlacementOptions options;
    options.link = kLink;
    options.costs = costs;
    for (const int d : {1, 2}) options.devices.push_back({engine->devices()[static_cast<size_t>(d)], kRates});
    std::vector<Output> fed;
    if (steps.node->op().name() == "Placeholder") fed.push_back(steps);
    const Output fetches[] = {y, dw};
    auto placed = place(graph, fed, fetches, {}, options);
    REQUIRE(placed.ok());
    return std::move(*placed);
  }

  std::unique_ptr<Engine> engine;
  Graph graph;
  Output steps, y, dw;
};

}  // namespace

TEST_CASE("a loop whose bounds are known takes what was predicted") {
  for (const int32_t iterations : {1, 50}) {
    Recurrent r(iterations);
    const auto session = r.open();
    CHECK(r.run(*session, iterations) == Approx(r.predict().step_ns).epsilon(0.02));
  }
}

TEST_CASE("how often a loop runs is measured, and predicted then") {
  Recurrent r(0);
  const auto session = r.open();
  double took = 0;
  for (int i = 0; i < 4; ++i) took = r.run(*session, 50);
  CHECK(r.predict().step_ns < 0.5 * took);  // as if 10 times
  const auto costs = std::make_shared<const CostModel>(session->costs());
  CHECK(took == Approx(r.predict(costs.get()).step_ns).epsilon(0.02));
  for (int id = 0; id < r.graph.size(); ++id) {
    const std::string& op = r.graph.node(id).op().name();
    if (op == "Tanh" || op == "TanhGrad") CHECK(costs->firings(r.graph.node(id).name()) == 50);
    if (op == "Less") CHECK(costs->firings(r.graph.node(id).name()) == 51);
  }
  // What other steps do shifts the mean.
  const auto next = r.open();
  for (int i = 0; i < 4; ++i) r.run(*next, i % 2 ? 20 : 40);
  const CostModel mixed = next->costs();
  for (int id = 0; id < r.graph.size(); ++id)
    if (r.graph.node(id).op().name() == "Tanh") CHECK(mixed.firings(r.graph.node(id).name()).value() == Approx(30));
}

TEST_CASE("a branch is measured to run as often as it is taken") {
  auto engine = *Engine::create({.cpu_threads = {1}});
  Graph graph(engine->ops());
  const Scope s(graph);
  const Output p = s.op("Placeholder", {}, {{"dtype", DType::kBool}, {"shape", PartialShape::scalar()}});
  const Output x = s.op("Fill", {s.constant(Tensor::of<int32_t>({8})), s.constant(0.5f)});
  const Output y = cond(
      s, p, [&](const Scope& in) { return std::vector{in.named("yes").op("Sin", {x})}; },
      [&](const Scope& in) { return std::vector{in.named("no").op("Cos", {x})}; })[0];
  REQUIRE(s.ok());
  Session session(*engine, graph, {.passes = GraphPasses::none(), .timed_steps = 8});
  for (int i = 0; i < 9; ++i) REQUIRE(session.run({{p, Tensor::scalar(i % 4 == 1)}}, {y}).ok());
  const CostModel costs = session.costs();
  REQUIRE(costs.find("cond/then/yes", "cpu"));
  CHECK(costs.find("cond/then/yes", "cpu")->firings == Approx(0.25));
  CHECK(costs.find("cond/then/yes", "cpu")->steps == 2);
  REQUIRE(costs.find("cond/else/no", "cpu"));
  CHECK(costs.find("cond/else/no", "cpu")->firings == Approx(0.75));
}

TEST_CASE("a session warns before a step that does not fit, which then fails with what is live") {
  const auto before = spdlog::default_logger();
  std::ostringstream log;
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_st>(log)));
  const auto run = [&](int64_t memory) {
    EngineOptions options = simulated(2);
    for (DeviceRates& rates : options.sim.devices) rates.memory = memory;
    auto engine = *Engine::create(options);
    Graph graph(engine->ops());
    const Scope s(graph);
    const Output x = s.named("large").op("Fill", {s.constant(Tensor::of<int32_t>({64, 64})), s.constant(1.f)});
    const Output y = s.named("product").op("MatMul", {x, x});
    Session session(*engine, graph,
                    {.default_device = "/sim:0", .passes = GraphPasses::none(), .placing = Placing::kByCost});
    return session.run({}, {s.op("AddV2", {x, y})});
  };
  CHECK(run(1 << 20).ok());
  CHECK(log.str().empty());
  const auto failed = run(20'000);  // one of the two
  spdlog::set_default_logger(before);
  CHECK_THAT(log.str(), Contains("warning") && Contains("does not fit the memory") && Contains("/device:sim:") &&
                            Contains(" bytes and has 20000"));
  REQUIRE_FALSE(failed.ok());
  CHECK(failed.error().code == Code::kResourceExhausted);
  CHECK_THAT(failed.error().message, Contains("live") && Contains("large"));
}

TEST_CASE("nodes keep the devices that they ask for, also when placed by cost") {
  for (const Placing placing : {Placing::kByHand, Placing::kByCost}) {
    auto engine = *Engine::create({.cpu_threads = {1, 1, 1}});
    Graph graph(engine->ops());
    const Scope s(graph);
    const Output x = s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape::scalar()}});
    const Output a = s.device("/cpu:2").op("Neg", {x}), b = s.colocate(a.node).op("Neg", {a});
    Session session(*engine, graph, {.passes = GraphPasses::none(), .placing = placing});
    auto r = session.run({{x, Tensor::scalar(3.f)}}, {b});
    REQUIRE(r.ok());
    CHECK((*r)[0].data<float>()[0] == 3);
    const auto stats = engine->device_stats();
    CHECK(stats[2].nodes == 2);
    CHECK(stats[0].nodes + stats[1].nodes == 0);
    const Output c = s.colocate(b.node).device("/cpu:1").named("c").op("Neg", {b});
    const auto conflict = session.run({{x, Tensor::scalar(3.f)}}, {c});
    REQUIRE_FALSE(conflict.ok());
    CHECK_THAT(conflict.error().message,
               Contains("'c' asks for /cpu:1") && Contains(a.node->name() + "' asks for /cpu:2"));
  }
}

TEST_CASE("a device that is not there is told with the node as it was written, though a pass replaced it") {
  auto engine = *Engine::create({.cpu_threads = {1}});
  Graph graph(engine->ops());
  const Scope s(graph);
  const Output folded = s.device("/gpu:0").named("folded").op("Neg", {s.constant(1.f)});
  Session session(*engine, graph);
  const auto r = session.run(std::vector<Feed>{}, {folded});
  REQUIRE_FALSE(r.ok());
  CHECK(r.error().code == Code::kNotFound);
  CHECK(r.error().node == "folded");
  CHECK(r.error().op == "Neg");
}

TEST_CASE("a session tells what it measured, and the next one begins with it") {
  Towers t({.cpu_threads = {1}});
  Session session(*t.engine, t.graph, {.passes = GraphPasses::none(), .timed_steps = 5});
  CHECK(session.costs().empty());
  t.train(session, 8);
  const CostModel costs = session.costs();
  CHECK(t.products().size() == 12);
  for (const Node* node : t.products()) {
    INFO(node->name());
    const MeasuredCost* cost = costs.find(node->name(), "cpu");
    REQUIRE(cost);
    CHECK(cost->ns > 0);
    CHECK(cost->steps == 5);
    CHECK(cost->bytes == 4.0 * static_cast<double>(node->shape(0).shape().elements()));
  }
  CHECK(costs.find(t.x.node->name(), "cpu") == nullptr);

  const auto earlier = std::make_shared<const CostModel>(costs);
  Session next(*t.engine, t.graph, {.passes = GraphPasses::none(), .costs = earlier, .timed_steps = 2});
  CHECK(next.costs().size() == costs.size());
  t.train(next, 4);
  for (const Node* node : t.products()) CHECK(next.costs().find(node->name(), "cpu")->steps == 7);
}

TEST_CASE("simulated devices measure the time they take") {
  Towers t(simulated(2));
  Session session(*t.engine, t.graph, {.default_device = "/sim:0", .passes = GraphPasses::none()});
  t.train(session, 3);
  const CostModel costs = session.costs();
  for (const Node* node : t.products()) {
    INFO(node->name());
    REQUIRE(costs.find(node->name(), "sim"));
    CHECK(costs.find(node->name(), "sim")->ns == Approx(CostModel().time_ns(*node, "sim", kRates)).margin(1));
  }
}

TEST_CASE("a plan begins with the costs given, and by cost with the order of the way to the end") {
  Simulation s(1);
  const Output x = s.scope.named("one").op("Fill", {s.scope.constant(Tensor::of<int32_t>({4})), s.scope.constant(1.f)});
  const Output y = s.scope.named("two").op("Neg", {x}), z = s.scope.named("three").op("Neg", {y});
  CostModel costs;
  costs.add("two", "cpu", 30'000, 16);
  KernelCache cache;
  PlanContext context{.kernels = s.kernels, .devices = s.devices, .passes = GraphPasses::none()};
  context.costs = &costs;
  context.placing = Placing::kByCost;
  auto plan = make_plan(s.graph, {}, {z}, {}, context, cache);
  REQUIRE(plan.ok());
  const PartitionPlan& p = (*plan)->partitions[0];
  REQUIRE(p.priorities.size() == p.size());
  for (uint32_t i = 0; i < p.size(); ++i) {
    const std::string& name = p.graph_nodes[i]->name();
    CHECK(p.cost_ns[i] == (name == "two" ? 30'000u : 0u));
    CHECK((name == "one" ? p.priorities[i] == 1000 : p.priorities[i] < 1000));
  }
}

}  // namespace
}  // namespace troupe
