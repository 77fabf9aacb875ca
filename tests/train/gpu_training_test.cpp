// SPDX-License-Identifier: Apache-2.0
// Trainers and pipelines on GPUs, on a fake of CUDA: they learn what they learn on CPUs, over devices that share a card
// and over cards.
#include "tests/gpu/fake_platform.h"
#include "tests/repeats.h"
#include "tests/train/pipeline_fixture.h"
#include "tests/train/trainer_fixture.h"

namespace troupe::nn {
namespace {

using troupe::testing::FakeGpus;

std::vector<std::string> gpu_names(int count) {
  std::vector<std::string> out;
  for (int i = 0; i < count; ++i) out.push_back(fmt::format("/gpu:{}", i));
  return out;
}

std::unique_ptr<Engine> engine_with(EngineOptions options) {
  auto made = Engine::create(std::move(options));
  INFO((made.ok() ? "" : made.error().str()));
  REQUIRE(made.ok());
  return std::move(*made);
}

void initialise(Trainer& trainer) {
  const Status status = trainer.initialise();
  INFO((status.ok() ? "" : status.error().str()));
  REQUIRE(status.ok());
}

/// Under a sanitizer kernels of the fake take most of the time, and a few updates pass all of the code.
constexpr int64_t kManyUpdates = kSlowness > 1 ? 2 : 60, kFewUpdates = kSlowness > 1 ? 3 : 12;

/// Within what another order of additions rounds to.
void check_close(const Trained& got, const Trained& expected) {
  CHECK(got.variables.size() == expected.variables.size());
  for (const auto& [name, value] : got.variables) {
    INFO(name);
    REQUIRE(expected.variables.contains(name));
    const Tensor& other = expected.variables.at(name);
    REQUIRE(value.shape() == other.shape());
    if (value.dtype() != DType::kFloat32) {
      CHECK(value.identical(other));
      continue;
    }
    for (int64_t i = 0; i < value.elements(); ++i)
      CHECK(value.data<float>()[i] == Approx(other.data<float>()[i]).epsilon(2e-3).margin(2e-4));
  }
  REQUIRE(got.losses.size() == expected.losses.size());
  for (size_t i = 0; i < got.losses.size(); ++i) CHECK(got.losses[i] == Approx(expected.losses[i]).epsilon(1e-3));
}

TEST_CASE("gpu: a trainer learns on GPUs in every mode") {
  const Mode mode = GENERATE(from_range(modes(0)));
  const bool one_card = GENERATE(true, false);
  if (kSlowness > 1 && one_card == (mode.reduce == ReduceBy::kRing)) return;  // each mode once
  INFO(mode.name << (one_card ? ", one card" : ", two cards"));
  FakeGpus gpus({.seed = 7, .cards = 2});
  auto engine = engine_with(one_card ? gpus.options(1, 2) : gpus.options(2, 1));
  TrainerOptions options = settings(*engine, mode);
  options.devices = gpu_names(2);
  auto trainer = trainer_of(*engine, options);
  // Batches wait in the memory of the GPU that takes them, where it is known which.
  std::vector<std::string> ahead;
  for (int i = 0; i < trainer->graph().size(); ++i)
    if (trainer->graph().node(i).op().name() == "_DeviceQueue") ahead.push_back(trainer->graph().node(i).device());
  const bool own = mode.mode == ReplicaMode::kSync || mode.mode == ReplicaMode::kLocal;
  CHECK((std::ranges::count(ahead, "/gpu:0") > 0) == own);
  CHECK((std::ranges::count(ahead, "/gpu:1") > 0) == own);
  initialise(*trainer);
  double first = 0, last = 0;
  int64_t reports = 0;
  const auto summary = trainer->run(kManyUpdates, [&](const StepReport& r) {
    if (reports++ == 0) first = r.loss;
    last = r.loss;
  });
  INFO((summary.ok() ? "" : summary.error().str()));
  REQUIRE(summary.ok());
  CHECK(std::isfinite(last));
  if (kManyUpdates == 60) CHECK(last < 0.9 * first);
  const auto tested = trainer->evaluate(circle(128, 32, 1));
  INFO((tested.ok() ? "" : tested.error().str()));
  REQUIRE(tested.ok());
  if (kManyUpdates == 60) CHECK(tested->accuracy > 0.6);
  // The weights are on the GPUs, and come to the host for a checkpoint.
  for (const auto& [name, value] : snapshot_of(*engine).variables) CHECK(value.space() == Space::kHost);
}

TEST_CASE("gpu: synchronous training on GPUs is that on CPUs") {
  const auto train = [](Engine& engine, std::vector<std::string> devices) {
    TrainerOptions options = settings(engine, ReplicaMode::kSync);
    options.devices = std::move(devices);
    options.optimizer = momentum(constant_rate(0.05f));  // Adam makes steps of what rounding leaves of a zero
    auto trainer = trainer_of(engine, options);
    initialise(*trainer);
    Trained out;
    const auto summary = trainer->run(kFewUpdates, [&](const StepReport& r) { out.losses.push_back(r.loss); });
    INFO((summary.ok() ? "" : summary.error().str()));
    REQUIRE(summary.ok());
    out.variables = snapshot_of(engine).variables;
    return out;
  };
  auto cpus = engine_with({.cpu_threads = {1, 1}});
  const Trained expected = train(*cpus, {"/cpu:0", "/cpu:1"});
  FakeGpus gpus({.seed = 11});
  auto engine = engine_with(gpus.options(1, 2));
  check_close(train(*engine, gpu_names(2)), expected);
}

TEST_CASE("gpu: training in 16 bits on GPUs is near that on CPUs, on one card and on two") {
  const DType dtype = GENERATE(DType::kFloat16, DType::kBFloat16);
  const int cards = GENERATE(1, 2);
  if (kSlowness > 1 && (cards == 1 || dtype == DType::kFloat16)) return;
  INFO(to_string(dtype) << " on " << cards << " cards");
  const auto narrow = [&](const Scope& s, Variables& v, const std::vector<Output>& batch, bool training) {
    return network(s, v, {cast(s, batch[0], dtype), batch[1]}, training);
  };
  const auto train = [&](Engine& engine, std::vector<std::string> devices) {
    TrainerOptions options = settings(engine, ReplicaMode::kSync);
    options.devices = std::move(devices);
    options.optimizer = momentum(constant_rate(0.05f));
    auto trainer = trainer_of(engine, options, circle(512, 32), narrow);
    initialise(*trainer);
    std::vector<double> losses;
    const auto summary = trainer->run(kFewUpdates, [&](const StepReport& r) { losses.push_back(r.loss); });
    INFO((summary.ok() ? "" : summary.error().str()));
    REQUIRE(summary.ok());
    for (const auto& [name, value] : snapshot_of(engine).variables) {
      INFO(name);
      CHECK((value.dtype() == DType::kFloat32 || value.dtype() == DType::kInt64));
    }
    return losses;
  };
  auto cpus = engine_with({.cpu_threads = {1, 1}});
  const std::vector<double> expected = train(*cpus, {"/cpu:0", "/cpu:1"});
  FakeGpus gpus({.seed = 17, .cards = cards});
  auto engine = engine_with(gpus.options(cards, 2 / cards));
  const std::vector<double> got = train(*engine, gpu_names(2));
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(expected[i]).margin(0.02));
}

TEST_CASE("gpu: pipelines over 1, 2 and 4 devices of a card, and over cards, learn what one CPU learns") {
  const Optimizer optimizer = adam(constant_rate(.02f));
  const Trained expected = reference(chain(stages_of(4)), optimizer, 3, kMicroBatches);
  struct Case {
    PipelineSchedule schedule;
    int cards, per_card;
  };
  const Case c = GENERATE(Case{PipelineSchedule::kGPipe, 1, 4}, Case{PipelineSchedule::kOneFOneB, 2, 2},
                          Case{PipelineSchedule::kInterleaved, 1, 2}, Case{PipelineSchedule::kZeroBubble, 4, 1});
  INFO("schedule " << static_cast<int>(c.schedule));
  FakeGpus gpus({.seed = 13, .cards = 4});
  auto engine = engine_with(gpus.options(c.cards, c.per_card));
  PipelineOptions options = options_of(c.schedule, 0, optimizer);
  options.devices = gpu_names(c.cards * c.per_card);
  check_close(trained(*engine, stages_of(4), options, 3), expected);
}

TEST_CASE("gpu: a trainer and a pipeline refuse a GPU that is not there") {
  FakeGpus gpus;
  auto engine = engine_with(gpus.options(1, 2));
  TrainerOptions options = settings(*engine, ReplicaMode::kSync);
  options.devices = {"/gpu:0", "/gpu:64"};
  const auto trainer = Trainer::create(*engine, network, circle(64, 32), options);
  REQUIRE_FALSE(trainer.ok());
  CHECK_THAT(trainer.error().message, Catch::Contains("\"/gpu:64\"") && Catch::Contains("device:gpu:1"));
  PipelineOptions staged = options_of(PipelineSchedule::kGPipe, 0, sgd(constant_rate(.1f)));
  staged.devices = options.devices;
  const auto pipeline = Pipeline::create(*engine, stages_of(2), points(2), staged);
  REQUIRE_FALSE(pipeline.ok());
  CHECK_THAT(pipeline.error().message, Catch::Contains("\"/gpu:64\""));
}

TEST_CASE("gpu: a card that is lost ends training with its name, and a trainer that ends amid work leaves nothing") {
  for (int round = 0; round < repeats(6); ++round) {
    FakeGpus gpus({.seed = static_cast<uint32_t>(round), .cards = 2});
    auto engine = engine_with(gpus.options(2, 1));
    TrainerOptions options = settings(*engine, ReplicaMode::kSync);
    options.devices = gpu_names(2);
    auto trainer = trainer_of(*engine, options);
    initialise(*trainer);
    if (round % 2 == 0 && gpus.runtime) {
      gpus.runtime->lose(1, 200);
      const auto summary = trainer->run(1000);
      REQUIRE_FALSE(summary.ok());
      CHECK(summary.error().code == Code::kUnavailable);
      CHECK_THAT(summary.error().device, Catch::Contains("gpu:"));
    } else {
      int64_t steps = 0;
      CHECK(trainer
                ->run(1000,
                      [&](const StepReport&) {
                        if (++steps == 3) trainer->stop();
                      })
                .ok());
    }
    trainer.reset();
  }
}

}  // namespace
}  // namespace troupe::nn
