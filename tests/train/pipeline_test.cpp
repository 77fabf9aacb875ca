// SPDX-License-Identifier: Apache-2.0
// Pipelines: the same bits as without one, schedules to the nanosecond on simulated devices, cuts, faults.
#include <cmath>
#include <set>

#include "tests/op_library.h"
#include "tests/train/pipeline_fixture.h"
#include "troupe/trace.h"

namespace troupe::nn {
namespace {

TEST_CASE("every schedule gives the bits of a run without a pipeline") {
  struct Case {
    const char* name;
    Optimizer optimizer;
    bool drop, norm;
  };
  Optimizer decayed = adam(constant_rate(.02f));
  decayed.weight_decay = .01f;
  decayed.l2 = .001f;
  Optimizer clipped = sgd(constant_rate(.2f));
  clipped.clip = clip_by_global_norm(.1f);
  const Case c = GENERATE_COPY(Case{"sgd", sgd(constant_rate(.2f)), true, false},
                               Case{"momentum", momentum(step_decay(.1f, .5f, 2)), false, false},
                               Case{"adam", adam(constant_rate(.02f)), true, false},
                               Case{"decay", decayed, false, false}, Case{"global norm", clipped, true, false},
                               Case{"moving averages", sgd(constant_rate(.2f)), true, true});
  INFO(c.name);
  constexpr int kBatches = 4;
  const Trained expected = reference(chain(stages_of(4, c.drop, c.norm)), c.optimizer, kBatches, kMicroBatches);
  for (const PipelineSchedule schedule : kSchedules) {
    const bool interleaved = schedule == PipelineSchedule::kInterleaved;
    INFO("schedule " << static_cast<int>(schedule));
    auto engine = engine_of(4);
    check_same(trained(*engine, stages_of(4, c.drop, c.norm), options_of(schedule, interleaved ? 2 : 4, c.optimizer),
                       kBatches),
               expected);
  }
}

TEST_CASE("replicas of a pipeline give the same bits") {
  const Optimizer optimizer = adam(constant_rate(.02f));
  const Trained expected = reference(chain(stages_of(2)), optimizer, 3, kMicroBatches);
  for (const PipelineSchedule schedule : {PipelineSchedule::kOneFOneB, PipelineSchedule::kZeroBubble}) {
    auto engine = engine_of(4);
    PipelineOptions o = options_of(schedule, 4, optimizer);
    o.replicas = 2;
    check_same(trained(*engine, stages_of(2), o, 3), expected);
  }
}

TEST_CASE("interleaved replicas, and stages that are computed again, give the same bits") {
  const Optimizer optimizer = adam(constant_rate(.02f));
  const Trained expected = reference(chain(stages_of(4)), optimizer, 3, kMicroBatches);
  auto engine = engine_of(4);
  PipelineOptions o = options_of(PipelineSchedule::kInterleaved, 4, optimizer);
  o.replicas = 2;
  check_same(trained(*engine, stages_of(4), o, 3), expected);
  for (const PipelineSchedule schedule : {PipelineSchedule::kOneFOneB, PipelineSchedule::kZeroBubble}) {
    auto other = engine_of(4);
    PipelineOptions again = options_of(schedule, 4, optimizer);
    again.gradients.recompute = {"stage_0", "stage_1", "stage_2"};
    check_same(trained(*other, stages_of(4), again, 3), expected);
  }
}

TEST_CASE("one micro-batch, and fewer than there are stages") {
  const Optimizer optimizer = momentum(constant_rate(.1f));
  for (const int m : {1, 2}) {
    const Trained expected = reference(chain(stages_of(4)), optimizer, 3, m);
    for (const PipelineSchedule schedule : kSchedules) {
      const bool interleaved = schedule == PipelineSchedule::kInterleaved;
      auto engine = engine_of(4);
      PipelineOptions o = options_of(schedule, interleaved ? 2 : 4, optimizer);
      o.micro_batches = m;
      check_same(trained(*engine, stages_of(4), o, 3), expected);
    }
  }
}

// -- schedules, on simulated devices ----------------------------------------------------------------------------------

constexpr int64_t kWidth = 2048;

/// Stages of one square product each: forward, input gradient and weight gradient take the same time. The first reads a
/// variable in place of data, so that it has an input gradient too.
std::vector<StageFn> products(int count) {
  std::vector<StageFn> out;
  for (int i = 0; i < count; ++i)
    out.push_back([=](const Scope& s, Variables& v, const std::vector<Output>& in, const std::vector<Output>&, bool) {
      const Output x = i == 0 ? v.read(s, "input", {kWidth, kWidth}, constant_init(1.f / kWidth)) : in[0];
      const Output y =
          dense(s, v, x, kWidth, fmt::format("product_{}", i), {.bias = false, .kernel = constant_init(1.f / kWidth)});
      if (i + 1 < count) return std::vector<Output>{y};
      return std::vector<Output>{mean_all(s, s.op("Square", {y}))};
    });
  return out;
}

/// Devices that take 1 ms for a product of the test and next to nothing for anything else.
std::unique_ptr<Engine> simulated(int devices) {
  EngineOptions o{.op_library = testing::op_library()};
  const DeviceRates rates{.flops = 2. * kWidth * kWidth * kWidth / 1e-3, .memory_bandwidth = 1e18, .launch_ns = 1e-6};
  o.sim.devices.assign(static_cast<size_t>(devices), rates);
  o.sim.compute = false;
  o.sim.link = {.bandwidth = 1e18, .latency_ns = 1};
  auto made = Engine::create(std::move(o));
  REQUIRE(made.ok());
  return std::move(*made);
}

PipelineOptions simulated_options(PipelineSchedule schedule, int devices, int m, int batches) {
  PipelineOptions o = options_of(schedule, 0, sgd(constant_rate(.01f)));
  for (int i = 0; i < devices; ++i) o.devices.push_back(fmt::format("/device:sim:{}", i));
  o.micro_batches = m;
  o.batches_in_flight = batches;
  return o;
}

/// Virtual time of `batches` batches, in products.
double products_of_time(PipelineSchedule schedule, int devices, int m, int batches) {
  auto engine = simulated(devices);
  auto data = Dataset::from_tensors({Tensor::zeros(DType::kFloat32, {m * batches, 1}).value()});
  REQUIRE(data.ok());
  const PipelineOptions o = simulated_options(schedule, devices, m, batches);
  const bool interleaved = schedule == PipelineSchedule::kInterleaved;
  auto pipeline = pipeline_of(*engine, products(interleaved ? 2 * devices : devices), data->batch(m, true), o);
  const int64_t before = engine->sim_now_ns();
  auto summary = pipeline->run(batches);
  INFO((summary.ok() ? std::string() : summary.error().str()));
  REQUIRE(summary.ok());
  return static_cast<double>(engine->sim_now_ns() - before) / 1e6;
}

TEST_CASE("schedules take the time of the papers") {
  const auto [p, m] = GENERATE(std::pair(2, 8), std::pair(4, 8));
  // A batch is m forward and m backward passes, the latter twice as long, and p - 1 of both to fill and drain.
  CHECK(products_of_time(PipelineSchedule::kGPipe, p, m, 1) == Approx(3 * (m + p - 1)).epsilon(.01));
  CHECK(products_of_time(PipelineSchedule::kOneFOneB, p, m, 1) == Approx(3 * (m + p - 1)).epsilon(.01));
  // Of stages half as long only half is lost; here each is a product, so there are twice as many.
  CHECK(products_of_time(PipelineSchedule::kInterleaved, p, m, 1) == Approx(3 * (2 * m + p - 1)).epsilon(.01));
  // From batch to batch nothing is lost at all.
  const double two = products_of_time(PipelineSchedule::kZeroBubble, p, m, 2);
  CHECK(products_of_time(PipelineSchedule::kZeroBubble, p, m, 4) - two == Approx(2 * 3 * m).epsilon(.01));
}

/// Micro-batches that a device had begun and not ended at once, by the trace: from its first forward node to its last
/// backward node.
std::vector<int> peaks(Engine& engine, Trace& trace, int devices) {
  struct Span {
    int64_t begin = INT64_MAX, end = 0;
  };
  std::vector<std::map<int64_t, Span>> spans(static_cast<size_t>(devices));
  for (const TraceEvent& e : trace.take()) {
    if (e.kind != TraceEvent::Kind::kRun || e.node->op().name() != "MatMul") continue;
    Span& span = spans[e.device - (engine.devices().size() - static_cast<size_t>(devices))][e.step];
    span.begin = std::min(span.begin, e.begin_ns);
    span.end = std::max(span.end, e.end_ns);
  }
  std::vector<int> out;
  for (const auto& of_device : spans) {
    std::vector<std::pair<int64_t, int>> changes;
    for (const auto& [step, span] : of_device) changes.insert(changes.end(), {{span.begin, 1}, {span.end, -1}});
    std::ranges::sort(changes);
    int now = 0, most = 0;
    for (const auto& change : changes) most = std::max(most, now += change.second);
    out.push_back(most);
  }
  return out;
}

TEST_CASE("credit bounds the micro-batches in flight") {
  const auto most = [](PipelineSchedule schedule) {
    auto engine = simulated(4);
    auto data = Dataset::from_tensors({Tensor::zeros(DType::kFloat32, {24, 1}).value()});
    PipelineOptions o = simulated_options(schedule, 4, 12, 2);
    o.trace = std::make_shared<Trace>();
    auto pipeline = pipeline_of(*engine, products(4), data->batch(12, true), o);
    REQUIRE(pipeline->run(2).ok());
    return peaks(*engine, *o.trace, 4);
  };
  CHECK(most(PipelineSchedule::kOneFOneB) == std::vector{4, 3, 2, 1});
  CHECK(most(PipelineSchedule::kGPipe)[0] == 12);
  for (const int peak : most(PipelineSchedule::kZeroBubble)) CHECK(peak <= 8);
}

TEST_CASE("schedules repeat to the nanosecond") {
  for (const PipelineSchedule schedule : kSchedules)
    CHECK(products_of_time(schedule, 2, 4, 2) == products_of_time(schedule, 2, 4, 2));
}

// -- asynchronous -----------------------------------------------------------------------------------------------------

TEST_CASE("an asynchronous pipeline updates with each micro-batch and learns") {
  auto engine = engine_of(3);
  PipelineOptions o = options_of(PipelineSchedule::kOneFOneB, 3, sgd(constant_rate(.2f)));
  o.asynchronous = true;
  auto pipeline = pipeline_of(*engine, stages_of(3, false), points(30), o);
  std::vector<float> losses;
  auto summary = pipeline->run(30, [&](const StepReport& r) { losses.push_back(r.loss); });
  INFO((summary.ok() ? std::string() : summary.error().str()));
  REQUIRE(summary.ok());
  CHECK(summary->updates == 30 * kMicroBatches);
  CHECK(pipeline->step() == 30 * kMicroBatches);
  CHECK(engine->snapshot().get()->variables.at("global_step").data<int64_t>()[0] == 30 * kMicroBatches);
  REQUIRE(losses.size() == 30);
  CHECK(losses[27] + losses[28] + losses[29] < .7f * (losses[0] + losses[1] + losses[2]));
  const auto metrics = pipeline->evaluate(points(4));
  REQUIRE(metrics.ok());
  CHECK(metrics->examples == 96);
  CHECK(metrics->accuracy > .85);
}

TEST_CASE("every schedule may be asynchronous, with replicas and clipping by the global norm") {
  for (const PipelineSchedule schedule : kSchedules) {
    auto engine = engine_of(4);
    Optimizer clipped = sgd(constant_rate(.1f));
    clipped.clip = clip_by_global_norm(1);
    PipelineOptions o = options_of(schedule, 4, clipped);
    o.replicas = 2;
    o.asynchronous = true;
    auto pipeline = pipeline_of(*engine, stages_of(schedule == PipelineSchedule::kInterleaved ? 4 : 2), points(3), o);
    const auto summary = pipeline->run(3);
    REQUIRE(summary.ok());
    CHECK(summary->updates == 3 * kMicroBatches);
  }
}

// With one micro-batch in flight there is nothing stale: the same as one update for each small batch. The updates take
// long here, so that what did not wait for them would begin meanwhile, on a simulated device for certain.
TEST_CASE("an asynchronous pipeline of one stage is a run of small batches") {
  const StageFn whole = [](const Scope& s, Variables& v, const std::vector<Output>& in,
                           const std::vector<Output>& batch, bool training) {
    return last(s, v, hidden(0, true, false)(s, v, in, batch, training), batch, training);
  };
  Optimizer slow = adam(constant_rate(.02f));
  slow.update = [fast = slow.update](const UpdateContext& c) {
    Output gradient = c.gradient;
    for (int i = 0; i < 20; ++i) gradient = c.scope.op("Mul", {gradient, c.scope.constant(i % 2 ? 2.f : .5f)});
    return fast({c.scope, c.variables, c.variable, gradient, c.rate, c.step});
  };
  const auto trained_on = [&](const char* device, bool asynchronous) {
    auto engine = Engine::create({.cpu_threads = {1}, .sim = {.devices = {DeviceRates{}}}});
    REQUIRE(engine.ok());
    PipelineOptions o = options_of(PipelineSchedule::kOneFOneB, 1, slow);
    o.devices = {device};
    o.asynchronous = asynchronous;
    if (!asynchronous) o.micro_batches = 1;
    auto pipeline = pipeline_of(**engine, {whole}, asynchronous ? points(3) : points(18, 4), o);
    REQUIRE(pipeline->run(asynchronous ? 3 : 18).ok());
    return Trained{(*engine)->snapshot().get()->variables, {}};
  };
  const Trained wanted = trained_on("/cpu:0", false);
  for (const char* device : {"/cpu:0", "/sim:0"}) check_same(trained_on(device, true), wanted);
}

// -- cuts
// ---------------------------------------------------------------------------------------------------------------

TEST_CASE("balance makes the dearest stage cheapest") {
  CHECK(*balance({1, 1, 1, 1}, 2) == std::vector<size_t>{0, 2});
  CHECK(*balance({5, 1, 1, 1, 2}, 2) == std::vector<size_t>{0, 1});
  CHECK(*balance({1, 2, 3, 4, 5, 6, 7, 8, 9}, 3) == std::vector<size_t>{0, 5, 7});
  CHECK(*balance({0, 0, 4}, 3) == std::vector<size_t>{0, 1, 2});
  CHECK(*balance({3}, 1) == std::vector<size_t>{0});
  CHECK_FALSE(balance({1, 2}, 3).ok());
  CHECK_FALSE(balance({1, 2}, 0).ok());
  CHECK_FALSE(balance({1, -2}, 1).ok());
  CHECK_FALSE(balance({1, NAN}, 1).ok());
  CHECK_FALSE(balance({1e308, 1e308, 1e308}, 2).ok());
}

/// Dense layers of these widths; tanh between them.
ModelFn layers(std::vector<int64_t> widths) {
  return [=](const Scope& s, Variables& v, const std::vector<Output>& batch, bool training) {
    Output x = batch[0];
    for (size_t i = 0; i < widths.size(); ++i) x = tanh(s, dense(s, v, x, widths[i], fmt::format("layer_{}", i)));
    return ModelOutputs{sparse_softmax_cross_entropy(s, dense(s, v, x, 2, "logits"), batch[1]), {}};
  };
}

TEST_CASE("a model is cut by cost, or by scopes") {
  const Optimizer optimizer = sgd(constant_rate(.2f));
  const Trained expected = reference(layers({64, 64, 16}), optimizer, 3, kMicroBatches);
  auto engine = engine_of(3);
  PipelineOptions o = options_of(PipelineSchedule::kZeroBubble, 2, optimizer);
  SECTION("by cost") {
    o.rates.launch_ns = 1e-3;
    auto made = Pipeline::create(*engine, layers({64, 64, 16}), points(3), o);
    REQUIRE(made.ok());
    const auto& stages = (*made)->stages();
    REQUIRE(stages.size() == 2);
    // The dear layer is 64 by 64; what is before it is cheaper than what is behind.
    CHECK(stages[0].variables.back() == "layer_1/bias");
    CHECK(stages[1].variables.front() == "layer_2/kernel");
    CHECK(stages[0].cost_ns > stages[1].cost_ns);
    REQUIRE((*made)->initialise().ok());
    REQUIRE((*made)->run(3).ok());
    check_same({engine->snapshot().get()->variables, {}}, {expected.variables, {}});
  }
  SECTION("by scopes") {
    o.scopes = {"layer_0", "layer_1", "layer_2"};
    o.devices.push_back("/cpu:2");
    auto made = Pipeline::create(*engine, layers({64, 64, 16}), points(3), o);
    REQUIRE(made.ok());
    CHECK((*made)->stages()[1].variables == std::vector<std::string>{"layer_1/kernel", "layer_1/bias"});
    CHECK((*made)->stages()[2].variables.size() == 4);  // the rest follows what it reads
    REQUIRE((*made)->initialise().ok());
    REQUIRE((*made)->run(3).ok());
    check_same({engine->snapshot().get()->variables, {}}, {expected.variables, {}});
  }
}

// -- going on, faults
// ---------------------------------------------------------------------------------------------------

TEST_CASE("a pipeline goes on from a snapshot as if it had not stopped") {
  const Optimizer optimizer = adam(cosine_decay(.05f, 6, 2));
  PipelineOptions o = options_of(PipelineSchedule::kZeroBubble, 3, optimizer);
  const Trained expected = reference(chain(stages_of(3)), optimizer, 4, kMicroBatches);
  Snapshot half;
  {
    auto engine = engine_of(3);
    auto pipeline = pipeline_of(*engine, stages_of(3), points(4), o);
    REQUIRE(pipeline->run(1).ok());
    REQUIRE(pipeline->run(1).ok());
    half = *engine->snapshot().get();
    CHECK_FALSE(pipeline->restore(half).ok());  // it has run
  }
  auto engine = engine_of(3);
  auto pipeline = pipeline_of(*engine, stages_of(3), points(4).skip(2), o);
  REQUIRE(pipeline->restore(half).ok());
  CHECK(pipeline->step() == 2);
  const auto summary = pipeline->run(5);
  REQUIRE(summary.ok());
  CHECK(summary->updates == 2);
  CHECK(summary->end_of_data);
  check_same({engine->snapshot().get()->variables, {}}, {expected.variables, {}});
}

TEST_CASE("a snapshot may be taken during a run, which it leaves as it is") {
  const PipelineSchedule schedule = GENERATE(from_range(std::begin(kSchedules), std::end(kSchedules)));
  const int stages = schedule == PipelineSchedule::kInterleaved ? 6 : 3;
  const Optimizer optimizer = adam(cosine_decay(.05f, 6, 2));
  const PipelineOptions o = options_of(schedule, 3, optimizer);
  const Trained expected = reference(chain(stages_of(stages)), optimizer, 4, kMicroBatches);
  std::vector<Snapshot> taken;
  {
    auto engine = engine_of(3);
    auto pipeline = pipeline_of(*engine, stages_of(stages), points(4), o);
    std::atomic<bool> done = false;
    std::vector<Snapshot> beside;
    std::thread other([&] {
      while (!done) beside.push_back(pipeline->snapshot().value());
    });
    const auto summary = pipeline->run(4, [&](const StepReport&) { taken.push_back(pipeline->snapshot().value()); });
    done = true;
    other.join();
    REQUIRE(summary.ok());
    check_same({engine->snapshot().get()->variables, {}}, {expected.variables, {}});
    taken.insert(taken.end(), beside.begin(), beside.end());
  }
  std::map<int64_t, Snapshot> by_step;
  for (const Snapshot& s : taken) {
    const auto [at, fresh] = by_step.try_emplace(step_of(s).value(), s);
    if (!fresh) check_same({at->second.variables, {}}, {s.variables, {}});
  }
  // Whichever it is, training goes on from it to the same bits.
  for (const auto& [step, snapshot] : by_step) {
    INFO("step " << step);
    auto engine = engine_of(3);
    auto pipeline = pipeline_of(*engine, stages_of(stages), points(4).skip(step), o);
    REQUIRE(pipeline->restore(snapshot).ok());
    REQUIRE(pipeline->run(4 - step).ok());
    check_same({engine->snapshot().get()->variables, {}}, {expected.variables, {}});
  }
}

TEST_CASE("a snapshot of simulated devices does not wait for a clock that stands still") {
  auto engine = simulated(2);
  auto data = Dataset::from_tensors({Tensor::zeros(DType::kFloat32, {16, 1}).value()});
  const PipelineOptions o = simulated_options(PipelineSchedule::kOneFOneB, 2, 4, 3);
  auto pipeline = pipeline_of(*engine, products(2), data->batch(4, true), o);
  std::vector<int64_t> steps;
  const auto summary =
      pipeline->run(4, [&](const StepReport&) { steps.push_back(step_of(pipeline->snapshot().value()).value()); });
  REQUIRE(summary.ok());
  REQUIRE(steps.size() == 4);
  CHECK(std::ranges::is_sorted(steps));
  CHECK(steps.back() == 4);
}

TEST_CASE("operators in a stage add their nodes to it") {
  const auto stage = [](int i) -> StageFn {
    return [=](const Scope& s, Variables& v, const std::vector<Output>& in, const std::vector<Output>& batch, bool) {
      const Output gain = v.read(s, fmt::format("gain_{}", i), {8}, ones());
      const Output x = in[0] * gain;
      const Output y = in[0] + dense(s, v, x, 8, fmt::format("dense_{}", i));
      return i < 2 ? std::vector<Output>{2 * y} : last(s, v, {y}, batch, true);
    };
  };
  const std::vector<StageFn> stages = {stage(0), stage(1), stage(2)};
  const Optimizer optimizer = sgd(constant_rate(.1f));
  const PipelineOptions o = options_of(PipelineSchedule::kOneFOneB, 3, optimizer);
  auto engine = engine_of(3);
  auto pipeline = pipeline_of(*engine, stages, points(1), o);
  for (int k = 0; k < 3; ++k) CHECK(pipeline->stages()[size_t(k)].variables[0] == fmt::format("gain_{}", k));
  int sums = 0;
  for (int id = 0; id < pipeline->graph().size(); ++id) {
    const Node& node = pipeline->graph().node(id);
    if (node.op().name() != "AddV2" || node.name().find("replica") != std::string::npos) continue;
    const size_t at = node.name().find("stage_");
    if (at == std::string::npos || node.name().find("AddV2") == std::string::npos) continue;
    ++sums;
    CHECK(node.device().ends_with(fmt::format(":{}", node.name()[at + 6])));
  }
  CHECK(sums >= 3);
  check_same(trained(*engine_of(3), stages, o, 2), reference(chain(stages), optimizer, 2, kMicroBatches));
}

TEST_CASE("stop ends a run after the batches in flight") {
  auto engine = engine_of(2);
  auto pipeline = pipeline_of(*engine, stages_of(2), points(2).repeat(-1),
                              options_of(PipelineSchedule::kOneFOneB, 2, sgd(constant_rate(.1f))));
  int reports = 0;
  const auto summary = pipeline->run(1 << 20, [&](const StepReport&) {
    ++reports;
    pipeline->stop();
  });
  REQUIRE(summary.ok());
  CHECK(reports == summary->updates);
  CHECK(reports <= PipelineOptions().batches_in_flight);
  CHECK(summary->stopped);
  CHECK(summary->updates >= 1);
  CHECK(summary->updates == pipeline->step());
  const int64_t before = pipeline->step();
  REQUIRE(pipeline->run(2).ok());
  CHECK(pipeline->step() == before + 2);
}

TEST_CASE("a stage that fails ends the run with its error") {
  for (const PipelineSchedule schedule : kSchedules) {
    auto engine = engine_of(3);
    const bool interleaved = schedule == PipelineSchedule::kInterleaved;
    std::vector<StageFn> stages = stages_of(interleaved ? 6 : 3, false);
    // Labels beyond the classes: the loss fails at the third micro-batch.
    auto x = Tensor::zeros(DType::kFloat32, {24, 8});
    std::vector<int32_t> labels(24, 0);
    labels[2 * 4] = 99;
    auto data = Dataset::from_tensors({*x, Tensor::of<int32_t>(labels)});
    auto pipeline = pipeline_of(*engine, stages, data->repeat(-1).batch(24, true),
                                options_of(schedule, 3, sgd(constant_rate(.1f))));
    const auto summary = pipeline->run(10);
    REQUIRE_FALSE(summary.ok());
    CHECK(summary.error().code != Code::kCancelled);
    CHECK(summary.error().str().find("99") != std::string::npos);
    CHECK_FALSE(pipeline->run(1).ok());
  }
}

TEST_CASE("two pipelines of one name do not get into each other's way") {
  auto engine = engine_of(2);
  const PipelineOptions o = options_of(PipelineSchedule::kOneFOneB, 2, sgd(constant_rate(.1f)));
  for (int i = 0; i < 2; ++i) {
    auto first = pipeline_of(*engine, stages_of(2), points(3), o);
    auto second = Pipeline::create(*engine, stages_of(2), points(3), o);
    REQUIRE_FALSE(second.ok());
    CHECK(second.error().code == Code::kAlreadyExists);
    CHECK_THAT(second.error().message, Catch::Contains("'pipeline'"));
    REQUIRE(first->run(3).ok());
  }
}

TEST_CASE("a stage may compute something in training alone") {
  auto engine = engine_of(3);
  std::vector<StageFn> stages = stages_of(3);
  stages[1] = [](const Scope& s, Variables& v, const std::vector<Output>& in, const std::vector<Output>&,
                 bool training) { return std::vector<Output>{dropout(s, v, in[0], .3f, training)}; };
  auto pipeline =
      pipeline_of(*engine, stages, points(2), options_of(PipelineSchedule::kOneFOneB, 3, sgd(constant_rate(.1f))));
  CHECK(pipeline->run(2).ok());
  const auto tested = pipeline->evaluate(points(1));
  REQUIRE(tested.ok());
  CHECK(tested->examples == 24);
}

TEST_CASE("what does not fit is an error with its values") {
  auto engine = engine_of(4);
  const auto refused = [&](PipelineOptions o, std::vector<StageFn> stages, Dataset data = points(2)) {
    auto made = Pipeline::create(*engine, std::move(stages), std::move(data), std::move(o));
    REQUIRE_FALSE(made.ok());
    return made.error().str();
  };
  const auto has = [](const std::string& text, const char* part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  const PipelineOptions good = options_of(PipelineSchedule::kOneFOneB, 3, sgd(constant_rate(.1f)));
  PipelineOptions o = good;
  o.micro_batches = 5;
  has(refused(o, stages_of(3)), "24 rows cannot be cut into 5");
  o = good;
  o.micro_batches = 0;
  has(refused(o, stages_of(3)), "micro_batches must be at least 1, got 0");
  has(refused(good, stages_of(2)), "2 stages for 3 devices");
  o = good;
  o.devices.clear();
  has(refused(o, stages_of(3)), "0 devices");
  o = good;
  o.optimizer = {};
  has(refused(o, stages_of(3)), "no optimizer");
  o = good;
  o.replicas = 3;
  has(refused(o, stages_of(3)), "3 stages for 1 devices");
  o.replicas = 4;
  has(refused(o, stages_of(3)), "6 micro-batches cannot be shared by 4");
  o = good;
  o.chunks = 2;
  has(refused(o, stages_of(3)), "2 stages on each device");
  o.schedule = PipelineSchedule::kInterleaved;
  o.chunks = 1 << 30;
  has(refused(o, stages_of(3)), "3221225472 stages");
  o = good;
  o.micro_batches = o.replicas = o.parts = 1 << 16;
  has(refused(o, stages_of(3)), "3 devices for 65536 replicas of stages of 65536 parts");
  std::vector<StageFn> empty = stages_of(3);
  empty[1] = [](const Scope&, Variables&, const std::vector<Output>& in, const std::vector<Output>&, bool) {
    return in;
  };
  has(refused(good, empty), "stage 1 is empty");
  o = good;
  o.devices = {"/cpu:0", "/cpu:1", "/cpu:9"};
  has(refused(o, stages_of(3)), "no device is \"/cpu:9\"");

  o = good;
  o.scopes = {"layer_0", "layer_2", "layer_1"};
  auto made = Pipeline::create(*engine, layers({8, 8, 8}), points(2), o);
  REQUIRE_FALSE(made.ok());
  has(made.error().str(), "not in order");
  o.scopes.clear();
  o.devices.push_back("/cpu:3");
  made = Pipeline::create(*engine, layers({8}), points(2), o);
  REQUIRE_FALSE(made.ok());
  has(made.error().str(), "4 stages are more than the model has layers: it can be cut into at most 2");

  o = good;
  o.name.clear();
  has(refused(o, stages_of(3)), "a pipeline needs a name");
  o = good;
  o.optimizer.clip = [](const Scope&, const std::vector<Output>& g) { return std::vector<Output>(g.size()); };
  has(refused(o, stages_of(3)), "would not be trained");
  o = good;
  o.optimizer.update_rows = {};
  o.optimizer.update = [](const UpdateContext&) -> const Node* { return nullptr; };
  has(refused(o, stages_of(3)), "gives no node");
  const ModelFn back = [](const Scope& scope, Variables& v, const std::vector<Output>& batch, bool) {
    const Scope first = scope.scope("layer_0"), second = scope.scope("layer_1"), third = scope.scope("layer_2");
    const Output h = dense(first, v, batch[0], 8, "a");
    const Output x = dense(second, v, h * v.read(second, "gain", {8}, ones()), 8, "b");
    return ModelOutputs{sparse_softmax_cross_entropy(third, dense(third, v, x, 2, "c"), batch[1]), {}};
  };
  o = good;
  o.scopes = {"layer_0", "layer_1", "layer_2"};
  made = Pipeline::create(*engine, back, points(2), o);
  REQUIRE_FALSE(made.ok());
  has(made.error().str(), "'layer_1/gain/read' of stage 1 (an operator");

  o = good;
  o.rates.flops = 0;
  has(refused(o, stages_of(3)), "no device can do 0 FLOP/s");

  // What is known only when it comes: the last batch is smaller.
  auto all = Dataset::from_tensors({*Tensor::zeros(DType::kFloat32, {35, 8}), *Tensor::zeros(DType::kInt32, {35})});
  auto late = pipeline_of(*engine, stages_of(3), all->batch(24), good);
  const auto summary = late->run(5);
  REQUIRE_FALSE(summary.ok());
  has(summary.error().str(), "11 rows cannot be cut into 6");
}

}  // namespace
}  // namespace troupe::nn
