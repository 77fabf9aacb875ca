// SPDX-License-Identifier: Apache-2.0
// What an engine, a session and a node may have at most, and what happens beyond. See docs/limits.md.
#include <malloc.h>

#include <cmath>
#include <ctime>
#include <latch>

#include "tests/engine/fixtures.h"
#include "tests/repeats.h"
#include "troupe/cost_model.h"
#include "troupe/gradients.h"

using namespace troupe;
using Catch::Contains;

namespace {

/// Of the process' processor time: others may keep the machine busy.
class Watch {
 public:
  double seconds() const { return static_cast<double>(std::clock() - begin_) / CLOCKS_PER_SEC / kSlowness; }

 private:
  const std::clock_t begin_ = std::clock();
};

std::string refusal(EngineOptions options) {
  auto engine = Engine::create(std::move(options));
  if (engine.ok()) return "";
  CHECK(engine.error().code == Code::kInvalidArgument);
  return engine.error().message;
}

}  // namespace

// -- nodes ------------------------------------------------------------------------------------------------------------

TEST_CASE("a node has at most 65,535 inputs and 32,767 outputs; more is an error when it is added") {
  TestEngine t;
  const Output one = t.scope.constant(1.f);
  const Output x = t.placeholder(DType::kFloat32, Shape{});
  CHECK(t.value({{x, Tensor::scalar(1.f)}}, t.scope.op("AddN", std::vector<Output>(65'535, x))).data<float>()[0] ==
        65'535.f);
  CHECK(t.value({{x, Tensor::scalar(1.f)}}, t.scope.op("Pack", std::vector<Output>(65'535, x))).dim(0) == 65'535);
  const Output axis = t.scope.constant(0);
  const Output row = t.scope.op("Fill", {t.scope.constant(Tensor::of<int32_t>({32'767})), x});
  const Node* split = t.scope.node("Split", {axis, row}, {{"num_split", int64_t{32'767}}});
  REQUIRE(split);
  CHECK(t.value({{x, Tensor::scalar(7.f)}}, split->out(32'766)).data<float>()[0] == 7.f);

  const auto error = [&](const std::string& op, std::vector<Output> inputs, Attrs attrs = {}) {
    auto added = t.graph.add({op, "n", std::move(inputs), std::move(attrs)});
    REQUIRE(!added.ok());
    CHECK(added.error().node == "n");
    return added.error().message;
  };
  for (const size_t inputs : {65'536u, 70'000u, 131'072u + 1u}) {
    CHECK_THAT(error("AddN", std::vector<Output>(inputs, one)), Contains(std::to_string(inputs) + " inputs"));
    CHECK_THAT(error("Pack", std::vector<Output>(inputs, one)), Contains("65535 are most"));
    CHECK_THAT(error("IdentityN", std::vector<Output>(inputs, one)), Contains("65535 are most"));
  }
  std::vector<Output> parts(65'535, t.scope.constant(Tensor::of<float>({1})));
  parts.push_back(axis);
  CHECK_THAT(error("ConcatV2", parts), Contains("65535 are most"));
  CHECK_THAT(error("Split", {axis, row}, {{"num_split", int64_t{32'768}}}), Contains("32768"));
  CHECK_THAT(error("Split", {axis, row}, {{"num_split", int64_t{65'536 + 1}}}), Contains("65537"));
  CHECK_THAT(error("IdentityN", std::vector<Output>(40'000, one)), Contains("32767 are most"));
}

TEST_CASE("an output that 70,000 nodes read has a gradient") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, Shape{});
  std::vector<Output> ys;
  const int readers = many(70'000);
  for (int i = 0; i < readers; ++i) ys.push_back(t.scope.op("Neg", {x}));
  const auto dx = gradients(t.scope, ys, {x});
  INFO((dx.ok() ? "" : dx.error().str()));
  REQUIRE(dx.ok());
  CHECK(t.value({{x, Tensor::scalar(3.f)}}, (*dx)[0]).data<float>()[0] == static_cast<float>(-readers));
}

TEST_CASE("names and attributes may be long, and a shape has at most 16 sizes") {
  TestEngine t;
  const std::string name(1 << 20, 'n'), value(64 << 20, 'v');
  const Output long_name = t.scope.named(name).constant(Tensor::scalar(std::string("x")));
  REQUIRE(long_name.node->name() == name);
  CHECK(t.value({}, t.scope.op("StringLength", {t.scope.constant(Tensor::scalar(value))})).data<int32_t>()[0] ==
        64 << 20);
  CHECK(t.value({}, long_name).data<std::string>()[0] == "x");

  const Output x = t.placeholder(DType::kFloat32, PartialShape());
  const Output shape = t.placeholder(DType::kInt32, PartialShape());
  const Output y = t.scope.op("Reshape", {x, shape});
  const auto reshaped = [&](size_t rank) {
    return t.session->run({{x, Tensor::scalar(1.f)}, {shape, Tensor::of<int32_t>(std::vector<int32_t>(rank, 1))}}, {y});
  };
  CHECK(reshaped(16).ok());
  REQUIRE(!reshaped(17).ok());
  CHECK_THAT(reshaped(17).error().message, Contains("17") && Contains("16"));
  CHECK(!t.graph.add({"Reshape", "r", {x, t.scope.constant(Tensor::of<int32_t>(std::vector<int32_t>(17, 1)))}}).ok());
}

// -- runs -------------------------------------------------------------------------------------------------------------

TEST_CASE("a step has as many feeds and fetches as the graph has outputs") {
  constexpr int kMany = many(50'000);
  TestEngine t;
  std::vector<Feed> feeds;
  std::vector<Output> fetches;
  for (int i = 0; i < kMany; ++i) {
    feeds.push_back({t.placeholder(DType::kFloat32, Shape{}), Tensor::scalar(static_cast<float>(i))});
    fetches.push_back(t.scope.op("Neg", {feeds.back().output}));
  }
  REQUIRE(t.scope.ok());
  const Watch watch;
  auto out = t.session->run(feeds, fetches);
  REQUIRE(out.ok());
  CHECK((*out)[kMany - 1].data<float>()[0] == 1.f - kMany);
  feeds[kMany - 1].output = feeds[7].output;
  out = t.session->run(feeds, fetches);
  REQUIRE(!out.ok());
  CHECK_THAT(out.error().message, Contains("'" + feeds[7].output.name() + "' is fed twice"));
  CHECK(watch.seconds() < 10);
}

TEST_CASE("100,000 steps may wait at once, and each is answered") {
  constexpr int kMany = many(100'000);
  TestEngine t;
  const Output queue = t.queue("q", DType::kFloat32, -1);
  const Output take = t.dequeue(queue, DType::kFloat32);
  const Output values = t.placeholder(DType::kFloat32, PartialShape());
  const Node* put = t.scope.node("QueueEnqueueManyV2", {queue, values});
  auto prepared = t.session->prepare({}, {take});
  REQUIRE(prepared.ok());
  const Watch watch;
  SECTION("with a value") {
    std::latch ended(kMany);
    std::atomic<int64_t> sum{0};
    for (int i = 0; i < kMany; ++i)
      t.session->run_async(*prepared, {}, [&](RunResult r) {
        if (r.ok()) sum += static_cast<int64_t>((*r)[0].data<float>()[0]);
        ended.count_down();
      });
    const std::vector<float> ones(kMany, 1.f);
    REQUIRE(t.session->run({{values, Tensor::of<float>(ones)}}, {}, {put}).ok());
    ended.wait();
    CHECK(sum == kMany);
  }
  SECTION("with the end of the queue") {
    std::latch ended(kMany);
    std::atomic<int> closed{0};
    for (int i = 0; i < kMany; ++i)
      t.session->run_async(*prepared, {}, [&](RunResult r) {
        closed += !r.ok() && r.error().code == Code::kOutOfRange;
        ended.count_down();
      });
    REQUIRE(t.session->run(std::vector<Feed>{}, {}, {t.scope.node("QueueCloseV2", {queue})}).ok());
    ended.wait();
    CHECK(closed == kMany);
  }
  CHECK(watch.seconds() < 30);
}

TEST_CASE("10,000 waiting steps are cancelled at once") {
  constexpr int kMany = many(10'000);
  TestEngine t;
  const Output take = t.dequeue(t.queue("q", DType::kFloat32), DType::kFloat32);
  CancelToken token;
  std::latch ended(kMany);
  std::atomic<int> cancelled{0};
  const Watch watch;
  for (int i = 0; i < kMany; ++i)
    t.session->run_async(std::vector<Feed>{}, {take}, {},
                         [&](RunResult r) {
                           cancelled += !r.ok() && r.error().code == Code::kCancelled;
                           ended.count_down();
                         },
                         {.cancel = token});
  token.cancel();
  ended.wait();
  CHECK(cancelled == kMany);
  CHECK(watch.seconds() < 20);
}

// -- devices ----------------------------------------------------------------------------------------------------------

TEST_CASE("an engine of 1,024 CPU devices is made in seconds, and a step runs on all") {
  const Watch watch;
  TestEngine t(std::vector<int>(1024, 1));
  std::vector<Output> parts;
  const Output x = t.placeholder(DType::kFloat32, Shape{});
  for (int i = 0; i < 1024; ++i) parts.push_back(t.scope.device(fmt::format("/cpu:{}", i)).op("Neg", {x}));
  const Output sum = t.scope.device("/cpu:1023").op("AddN", parts);
  for (int step = 0; step < 3; ++step) CHECK(t.value({{x, Tensor::scalar(1.f)}}, sum).data<float>()[0] == -1024.f);
  t.session.reset();
  t.engine.reset();
  CHECK(watch.seconds() < 10);
}

TEST_CASE("an engine of 100,000 simulated devices is made in seconds, and a step runs on many") {
  const Watch watch;
  for (const size_t devices : {size_t{1024}, static_cast<size_t>(many(100'000))}) {
    EngineOptions options{.cpu_threads = {1}};
    options.sim.devices.resize(devices);
    auto engine = Engine::create(std::move(options));
    INFO((engine.ok() ? "" : engine.error().str()));
    REQUIRE(engine.ok());
    Graph graph((*engine)->ops());
    const Scope scope(graph);
    std::vector<Output> parts;
    for (size_t i = 0; i < 1024; ++i)
      parts.push_back(scope.device(fmt::format("/sim:{}", i * devices / 1024)).op("Neg", {scope.constant(1.f)}));
    const Output sum = scope.device("/sim:0").op("AddN", parts);
    Session session(**engine, graph, {.default_device = "/sim:0", .passes = GraphPasses::none()});
    const auto out = session.run(std::vector<Feed>{}, {sum});
    INFO((out.ok() ? "" : out.error().str()));
    REQUIRE(out.ok());
    CHECK((*out)[0].data<float>()[0] == -1024.f);
  }
  CHECK(watch.seconds() < 20);
}

TEST_CASE("an engine's options out of range are errors that state the range") {
  CHECK_THAT(refusal({.cpu_threads = std::vector<int>(1025, 1)}), Contains("at most 1024, got 1025"));
  CHECK_THAT(refusal({.cpu_threads = {1, 0}}), Contains("cpu:1 must be from 1 to 1024, got 0"));
  CHECK_THAT(refusal({.cpu_threads = {1025}}), Contains("got 1025"));
  CHECK_THAT(refusal({.cpu_threads = {INT_MIN}}), Contains("got -2147483648"));
  CHECK_THAT(refusal({.memory_limit = -1}), Contains("at least 0, got -1"));
  CHECK_THAT(refusal({.scheduler_threads = -1}), Contains("from 0 to 1024, got -1"));
  CHECK_THAT(refusal({.scheduler_threads = 1025}), Contains("got 1025"));
  EngineOptions options;
  options.sim.devices.resize(100'001);
  CHECK_THAT(refusal(options), Contains("at most 100000, got 100001"));
  for (const double bad : {0., -1., std::nan("")}) {
    options.sim.devices.assign(1, DeviceRates{.flops = bad});
    CHECK_THAT(refusal(options), Contains("sim:0"));
  }
}

// -- plans ------------------------------------------------------------------------------------------------------------

TEST_CASE("10,000 signatures take the memory of the plans that are kept") {
  constexpr int kMany = many(10'000);
  TestEngine t;
  t.session = std::make_unique<Session>(*t.engine, t.graph, SessionOptions{.plans = 100});
  const Output x = t.placeholder(DType::kFloat32, Shape{});
  std::vector<Output> ys;
  for (int i = 0; i < kMany; ++i) ys.push_back(t.scope.op("AddV2", {x, t.scope.constant(static_cast<float>(i))}));
  REQUIRE(t.scope.ok());
  size_t after_few = 0;
  for (int i = 0; i < kMany; ++i) {
    const auto out = t.session->run({{x, Tensor::scalar(0.5f)}}, {ys[static_cast<size_t>(i)]});
    REQUIRE(out.ok());
    REQUIRE((*out)[0].data<float>()[0] == static_cast<float>(i) + 0.5f);
    if (i == kMany / 10) after_few = mallinfo2().uordblks;
  }
  // Of each node the kernel stays (some 200 bytes), and what its steps have measured.
  CHECK(mallinfo2().uordblks < after_few + kMany * size_t{1'500});
}

TEST_CASE("constants that passes make for plans are bounded in bytes") {
  TestEngine t;
  t.session = std::make_unique<Session>(*t.engine, t.graph, SessionOptions{.plan_bytes = 4 << 20});
  const Output small = t.scope.constant(Tensor::of<float>(std::vector<float>(2'000, 1.f)));
  std::vector<Output> ys;
  for (int i = 0; i < many(5'000); ++i)
    ys.push_back(t.scope.op("AddV2", {small, t.scope.constant(static_cast<float>(i))}));
  size_t after_few = 0;
  for (size_t i = 0; i < ys.size(); ++i) {
    const auto out = t.session->run(std::vector<Feed>{}, {ys[i]});
    REQUIRE(out.ok());
    REQUIRE((*out)[0].data<float>()[1'999] == static_cast<float>(i) + 1.f);
    if (i == 600) after_few = mallinfo2().uordblks;
  }
  CHECK(mallinfo2().uordblks < after_few + (12u << 20));  // 8 KB each would be 40 MB
}

TEST_CASE("a plan that went comes back: variables, random draws, measured costs and held plans go on") {
  const auto draws = [](int64_t plans) {
    TestEngine t;
    t.session = std::make_unique<Session>(*t.engine, t.graph, SessionOptions{.plans = plans});
    const Output shape = t.scope.constant(Tensor::of<int32_t>({1}));
    const Output random = t.scope.named("random").op(
        "RandomUniform", {shape}, {{"dtype", DType::kFloat32}, {"seed", int64_t{7}}, {"seed2", int64_t{9}}});
    const Output twice = t.scope.op("AddV2", {random, random});
    std::vector<float> out;
    for (int i = 0; i < 20; ++i)
      out.push_back(t.value({}, i % 2 ? twice : random).data<float>()[0] / (i % 2 ? 2.f : 1.f));
    return out;
  };
  CHECK(draws(1) == draws(256));
  CHECK(draws(-5) == draws(256));

  TestEngine t;
  t.session = std::make_unique<Session>(*t.engine, t.graph, SessionOptions{.plans = 1});
  const Output x = t.placeholder(DType::kFloat32, Shape{});
  const Output held = t.scope.named("held").op("Neg", {x}), other = t.scope.named("other").op("Abs", {x});
  auto prepared = t.session->prepare({x}, {held});
  REQUIRE(prepared.ok());
  for (int i = 0; i < 10; ++i) {
    CHECK(t.value({{x, Tensor::scalar(-2.f)}}, other).data<float>()[0] == 2.f);
    CHECK(t.value({}, t.scope.constant(static_cast<float>(i))).data<float>()[0] == static_cast<float>(i));
    const auto out = t.session->run(*prepared, {Tensor::scalar(-2.f)});
    REQUIRE(out.ok());
    CHECK((*out)[0].data<float>()[0] == 2.f);
  }
  const CostModel costs = t.session->costs();
  CHECK(costs.find("held", "cpu"));
}

TEST_CASE("a plan may go while its step waits") {
  TestEngine t;
  t.session = std::make_unique<Session>(*t.engine, t.graph, SessionOptions{.plans = 1});
  const Output queue = t.queue("q", DType::kFloat32);
  const Output take = t.scope.op("Neg", {t.dequeue(queue, DType::kFloat32)});
  auto waiting = t.session->run_future(std::vector<Feed>{}, {take});
  for (int i = 0; i < 5; ++i) t.value({}, t.scope.constant(static_cast<float>(i)));
  REQUIRE(
      t.session->run(std::vector<Feed>{}, {}, {t.scope.node("QueueEnqueueV2", {queue, t.scope.constant(4.f)})}).ok());
  const RunResult out = waiting.get();
  REQUIRE(out.ok());
  CHECK((*out)[0].data<float>()[0] == -4.f);
}
