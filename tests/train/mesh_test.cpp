// SPDX-License-Identifier: Apache-2.0
// Data x pipeline x tensor: replicas of a pipeline whose stages are split over devices, on a mesh of eight.
#include <numeric>
#include <random>

#include "tests/nn/fixture.h"
#include "troupe/device_mesh.h"
#include "troupe/pipeline.h"
#include "troupe/tensor_parallel.h"

namespace troupe::nn {
namespace {

Dataset six_batches() {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> x(6 * 16 * 5);
  std::vector<int32_t> labels;
  for (float& value : x) value = normal(random);
  for (size_t i = 0; i < 6 * 16; ++i) labels.push_back(x[5 * i] > x[5 * i + 1] ? 1 : 0);
  auto made = Dataset::from_tensors({Tensor::of<float>(x, {6 * 16, 5}), Tensor::of<int32_t>(labels)});
  REQUIRE(made.ok());
  return made->repeat(-1).batch(16, true);
}

/// Two stages of two layers each, whole or split over `parts`.
std::vector<StageFn> stages(int parts) {
  const auto two_layers = [parts](const Scope& s, Variables& v, Output x, int64_t units, const std::string& name) {
    if (parts == 1) return dense(s, v, tanh(s, dense(s, v, x, 9, name + "_up")), units, name + "_down");
    const Spread up = each(s, dense_by_columns(s, v, x, 9, name + "_up", part_devices(parts)), tanh);
    return dense_by_rows(s, v, up, units, name + "_down");
  };
  return {
      [=](const Scope& s, Variables& v, const std::vector<Output>& in, const std::vector<Output>&, bool) {
        return std::vector<Output>{tanh(s, two_layers(s, v, in[0], 6, "first"))};
      },
      [=](const Scope& s, Variables& v, const std::vector<Output>& in, const std::vector<Output>& batch, bool) {
        const Output logits = two_layers(s, v, in[0], 2, "second");
        return std::vector<Output>{sparse_softmax_cross_entropy(s, logits, batch[1]), accuracy(s, logits, batch[1])};
      }};
}

struct Run {
  std::vector<float> losses;
  Metrics metrics;
};

Run train_pipeline(const std::vector<std::string>& devices, const EngineOptions& machine, int replicas, int parts,
                   const Optimizer& optimizer, const Dataset& data) {
  auto engine = Engine::create(machine);
  REQUIRE(engine.ok());
  PipelineOptions options{.devices = devices, .micro_batches = 4, .replicas = replicas, .parts = parts};
  options.optimizer = optimizer;
  auto pipeline = Pipeline::create(**engine, stages(parts), data, options);
  INFO((pipeline.ok() ? "" : pipeline.error().str()));
  REQUIRE(pipeline.ok());
  REQUIRE((*pipeline)->initialise().ok());
  Run run;
  auto summary = (*pipeline)->run(12, [&](const StepReport& r) { run.losses.push_back(r.loss); });
  INFO((summary.ok() ? "" : summary.error().str()));
  REQUIRE(summary.ok());
  auto metrics = (*pipeline)->evaluate(data.take(2));
  INFO((metrics.ok() ? "" : metrics.error().str()));
  REQUIRE(metrics.ok());
  run.metrics = *metrics;
  if (parts > 1) {
    // Each share is updated on a device of its own: every one of the eight had work.
    for (const DeviceStats& stats : (*engine)->device_stats())
      if (std::ranges::count(devices, stats.name) > 0) CHECK(stats.busy_ns > 0);
  }
  return run;
}

TEST_CASE("replicas of a pipeline of split stages are the whole model") {
  const Dataset data = six_batches();
  for (const Optimizer& optimizer : {momentum(constant_rate(0.2f)), adam(constant_rate(0.03f))}) {
    const Run whole = train_pipeline({"/cpu:0", "/cpu:1"}, {.cpu_threads = {1, 1}}, 1, 1, optimizer, data);
    auto probe = Engine::create({.cpu_threads = {1}, .sim = {.devices = std::vector<DeviceRates>(8)}});
    REQUIRE(probe.ok());
    std::vector<std::string> names = (*probe)->devices();
    names.erase(names.begin());
    const auto mesh = DeviceMesh::create(names, {{"data", 2}, {"pipeline", 2}, {"tensor", 2}});
    REQUIRE(mesh.ok());
    const Run spread = train_pipeline(
        mesh->devices(), {.cpu_threads = {1}, .sim = {.devices = std::vector<DeviceRates>(8)}}, 2, 2, optimizer, data);
    REQUIRE(whole.losses.size() == 12);
    REQUIRE(spread.losses.size() == 12);
    for (size_t i = 0; i < 12; ++i) CHECK(spread.losses[i] == Approx(whole.losses[i]).epsilon(1e-4));
    const auto sum = [&](size_t from) { return std::accumulate(&whole.losses[from], &whole.losses[from] + 6, 0.f); };
    CHECK(sum(6) < sum(0));  // each is one round through the data
    CHECK(spread.metrics.loss == Approx(whole.metrics.loss).epsilon(1e-4));
    CHECK(spread.metrics.accuracy == whole.metrics.accuracy);
  }
}

TEST_CASE("a stage of a pipeline names its own parts only") {
  auto engine = Engine::create({.cpu_threads = {1, 1, 1, 1}});
  REQUIRE(engine.ok());
  PipelineOptions options{.devices = (*engine)->devices(), .micro_batches = 4, .parts = 2};
  options.optimizer = sgd(constant_rate(0.1f));
  auto three = Pipeline::create(**engine, stages(3), six_batches(), options);
  REQUIRE_FALSE(three.ok());
  CHECK_THAT(three.error().message, Catch::Contains("/part:2") && Catch::Contains("2 parts"));
  options.parts = 3;
  auto uneven = Pipeline::create(**engine, stages(3), six_batches(), options);
  REQUIRE_FALSE(uneven.ok());
  CHECK_THAT(uneven.error().message, Catch::Contains("4 devices"));
  options.parts = 0;
  CHECK_FALSE(Pipeline::create(**engine, stages(1), six_batches(), options).ok());
}

}  // namespace
}  // namespace troupe::nn
