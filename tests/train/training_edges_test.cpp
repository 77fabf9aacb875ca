// SPDX-License-Identifier: Apache-2.0
// Edges of training runs: stops that come late, counts without bound, models that give something else, checkpoints that
// do not fit, calls after a failure.
#include <limits>

#include "tests/train/pipeline_fixture.h"
#include "tests/train/trainer_fixture.h"
#include "troupe/dataset_queue.h"

namespace troupe::nn {
namespace {

ModelOutputs one_layer(const Scope& s, Variables& v, const std::vector<Output>& batch, bool) {
  const Output logits = dense(s, v, batch[0], 2, "logits");
  return {sparse_softmax_cross_entropy(s, logits, batch[1]), accuracy(s, logits, batch[1])};
}

PipelineOptions options_of_pipeline() {
  PipelineOptions o = nn::options_of(PipelineSchedule::kOneFOneB, 2, sgd(constant_rate(.1f)));
  o.container = "piped";  // its layers have the names of the trainers'
  return o;
}

template <class T> std::string message_of(const T& result) { return result.ok() ? "ok" : result.error().str(); }

// -- stops and counts -------------------------------------------------------------------------------------------------

TEST_CASE("a stop that comes with the last update is not for the next run") {
  const Mode m = GENERATE(kSyncMode, kAsyncMode);
  INFO(m.name);
  auto engine = engine_of(2);
  auto trainer = trainer_of(*engine, settings(*engine, m), circle(512, 16), one_layer);
  REQUIRE(trainer->initialise().ok());
  int64_t reports = 0;
  const auto first = trainer->run(5, [&](const StepReport&) {
    if (++reports == 5) trainer->stop();
  });
  REQUIRE(first.ok());
  CHECK(first->updates == 5);
  const auto second = trainer->run(3);
  REQUIRE(second.ok());
  CHECK(second->updates == 3);
  CHECK_FALSE(second->stopped);

  auto pipeline = pipeline_of(*engine, stages_of(2), points(8), options_of_pipeline());
  REQUIRE(pipeline
              ->run(2,
                    [&](const StepReport& r) {
                      if (r.step == 2) pipeline->stop();
                    })
              ->updates == 2);
  CHECK(pipeline->run(2)->updates == 2);
}

TEST_CASE("a stop before a run ends the next run alone") {
  const Mode m = GENERATE(from_range(modes(1)));
  INFO(m.name);
  auto engine = engine_of(2);
  auto trainer = trainer_of(*engine, settings(*engine, m), circle(512, 16), one_layer);
  REQUIRE(trainer->initialise().ok());
  trainer->stop();
  trainer->stop();
  const auto stopped = trainer->run(4);
  REQUIRE(stopped.ok());
  CHECK(stopped->updates == 0);
  CHECK(stopped->stopped);
  CHECK(trainer->run(4)->updates == 4);
  CHECK(trainer->run(0)->updates == 0);
  CHECK(trainer->run(-1).error().code == Code::kInvalidArgument);
  CHECK(trainer->step() == 4);
}

TEST_CASE("a stop that comes while on_step tests ends the test and the run") {
  const auto check = [](auto& trained, const Dataset& silent) {
    bool tested = false;
    const auto run = trained.run(1'000, [&](const StepReport&) {
      if (std::exchange(tested, true)) return;
      trained.stop();
      const auto metrics = trained.evaluate(silent);
      REQUIRE_FALSE(metrics.ok());
      CHECK(metrics.error().code == Code::kCancelled);
    });
    REQUIRE(run.ok());
    CHECK(run->stopped);
    CHECK(run->updates < 1'000);
    CHECK(trained.run(2)->updates == 2);
  };
  auto engine = engine_of(2);
  SECTION("of a trainer") {
    const Mode m = GENERATE(from_range(modes(1)));
    INFO(m.name);
    auto trainer = trainer_of(*engine, settings(*engine, m), circle(512, 16), one_layer);
    REQUIRE(trainer->initialise().ok());
    const auto queue = DatasetQueue::create({DType::kFloat32, DType::kInt32}, {{16, 2}, {16}}).value();
    check(*trainer, Dataset::from_queue(queue));
  }
  SECTION("of a pipeline") {
    auto pipeline = pipeline_of(*engine, stages_of(2), points(32), options_of_pipeline());
    const Dataset batches = points(1);
    const auto queue = DatasetQueue::create(batches.dtypes(), batches.shapes()).value();
    check(*pipeline, Dataset::from_queue(queue));
  }
}

TEST_CASE("a run is not begun, and nothing is initialised, in the on_step of another run") {
  const auto check = [](auto& trained) {
    int reports = 0;
    const auto run = trained.run(12, [&](const StepReport&) {
      if (++reports != 2) return;
      CHECK(trained.run(1).error().code == Code::kFailedPrecondition);
      CHECK(trained.initialise().error().code == Code::kFailedPrecondition);
    });
    INFO(message_of(run));
    REQUIRE(run.ok());
    CHECK(run->updates == 12);
    CHECK(reports >= 12);
    CHECK(trained.step() == 12);
    CHECK(step_of(trained.snapshot().value()).value() == 12);
  };
  auto engine = engine_of(2);
  SECTION("of a trainer") {
    const Mode m = GENERATE(from_range(modes(0)));
    INFO(m.name);
    auto trainer = trainer_of(*engine, settings(*engine, m), circle(512, 16), one_layer);
    REQUIRE(trainer->initialise().ok());
    check(*trainer);
    CHECK(trainer->initialise().ok());
  }
  SECTION("of a pipeline") {
    auto pipeline = pipeline_of(*engine, stages_of(2), points(16), options_of_pipeline());
    check(*pipeline);
    CHECK(pipeline->initialise().ok());
  }
}

TEST_CASE("a snapshot that is asked for behind a stop is given while the run ends") {
  const Mode m = GENERATE(from_range(modes(0)));
  INFO(m.name);
  auto engine = engine_of(3);
  TrainerOptions o = settings(*engine, m);
  if (m.mode == ReplicaMode::kLocal) o.local_steps = 4;
  auto trainer = trainer_of(*engine, o, circle(512, 16), one_layer);
  REQUIRE(trainer->initialise().ok());
  for (int i = 0; i < 5; ++i) {
    bool taken = false;
    const auto summary = trainer->run(1'000'000, [&](const StepReport&) {
      trainer->stop();
      taken = trainer->snapshot().ok();
    });
    REQUIRE(summary.ok());
    CHECK(summary->stopped);
    CHECK(taken);
  }
}

TEST_CASE("a run may ask for any number of updates, and ends with the data") {
  const Mode m = GENERATE(from_range(modes(1)));
  INFO(m.name);
  auto engine = engine_of(2);
  TrainerOptions o = settings(*engine, m);
  if (m.mode == ReplicaMode::kLocal) o.local_steps = INT64_MAX;
  if (m.mode == ReplicaMode::kAsync) o.max_staleness = INT64_MAX;
  auto trainer = trainer_of(*engine, o, circle(512, 16, 1), one_layer);
  REQUIRE(trainer->initialise().ok());
  REQUIRE(trainer->run(2)->updates == 2);
  const auto rest = trainer->run(INT64_MAX);
  INFO(message_of(rest));
  REQUIRE(rest.ok());
  CHECK(rest->end_of_data);
  CHECK(rest->updates >= 5);
  CHECK(trainer->step() == 2 + rest->updates);
  CHECK(trainer->run(INT64_MAX)->updates == 0);
}

// -- models -----------------------------------------------------------------------------------------------------------

TEST_CASE("a loss or accuracy that is not a float32 scalar is an error of create, in training and in tests") {
  using Wrong = std::function<Output(const Scope&, Output loss)>;
  const Wrong wrongs[] = {[](const Scope& s, Output loss) {
                            return s.op("Cast", {loss}, {{"DstT", DType::kFloat64}});
                          },
                          [](const Scope& s, Output loss) {
                            return s.op("Cast", {loss}, {{"DstT", DType::kInt32}});
                          },
                          [](const Scope& s, Output loss) {
                            return s.op("ExpandDims", {loss, s.constant(0)});
                          }};
  auto engine = engine_of(2);
  for (const Wrong& wrong : wrongs)
    for (const bool in_training : {false, true})
      for (const bool of_loss : {false, true}) {
        const ModelFn model = [=](const Scope& s, Variables& v, const std::vector<Output>& batch, bool training) {
          ModelOutputs out = one_layer(s, v, batch, training);
          if (training == in_training) (of_loss ? out.loss : out.accuracy) = wrong(s, out.loss);
          return out;
        };
        const auto trainer = Trainer::create(*engine, model, circle(64, 32), settings(*engine, ReplicaMode::kSync));
        CHECK_THAT(message_of(trainer), Catch::Contains(of_loss ? "the model's loss" : "the model's accuracy"));
        const StageFn last = [=](const Scope& s, Variables& v, const std::vector<Output>& in,
                                 const std::vector<Output>& batch, bool training) {
          const ModelOutputs out = model(s, v, {in[0], batch[1]}, training);
          return std::vector<Output>{out.loss, out.accuracy};
        };
        const auto pipeline =
            Pipeline::create(*engine, {hidden(0, false, false), last}, points(2), options_of_pipeline());
        CHECK_THAT(message_of(pipeline), Catch::Contains("a float32 scalar is needed"));
      }
}

TEST_CASE("a loss whose shape is known only when it comes is an error of the step where it is not a scalar") {
  // Components: points, labels, and what is added to the loss, of a shape that nobody knows.
  const auto data = [](const Shape& added) {
    return circle(64, 32).map(
        [added](Element e) -> Result<Element> {
          TROUPE_ASSIGN(Tensor zeros, Tensor::zeros(DType::kFloat32, added));
          e.push_back(std::move(zeros));
          return e;
        },
        {DType::kFloat32, DType::kInt32, DType::kFloat32}, {{32, 2}, {32}, PartialShape::unknown()});
  };
  const ModelFn model = [](const Scope& s, Variables& v, const std::vector<Output>& batch, bool training) {
    ModelOutputs out = one_layer(s, v, batch, training);
    out.loss = s.op("AddV2", {out.loss, batch[2]});
    return out;
  };
  for (const Shape& added : {Shape{}, Shape{0}, Shape{3}}) {
    INFO(added.str());
    auto engine = engine_of(1);
    auto trainer = trainer_of(*engine, settings(*engine, ReplicaMode::kSync), data(added), model);
    REQUIRE(trainer->initialise().ok());
    const auto tested = trainer->evaluate(data(added).take(2));
    const auto run = trainer->run(2);
    CHECK(tested.ok() == (added.rank() == 0));
    CHECK(run.ok() == (added.rank() == 0));
    if (!run.ok()) CHECK_THAT(run.error().str(), Catch::Contains("[0]") || Catch::Contains("[3]"));
  }
}

TEST_CASE("an evaluation passes over batches without rows, and refuses those of other components") {
  auto engine = engine_of(2);
  auto trainer = trainer_of(*engine, settings(*engine, ReplicaMode::kSync), circle(64, 32), one_layer);
  REQUIRE(trainer->initialise().ok());
  auto pipeline = pipeline_of(*engine, stages_of(2, false), points(2), options_of_pipeline());
  const auto with_empty = [](const Dataset& data) {
    return data.map(
        [n = std::make_shared<int>(0)](Element e) -> Result<Element> {
          if ((*n)++ % 2 == 0)
            for (Tensor& t : e) {
              TROUPE_ASSIGN(t, t.slice(0, 0));
            }
          return e;
        },
        data.dtypes(), std::vector<PartialShape>(2));
  };
  const auto metrics = trainer->evaluate(with_empty(circle(64, 16, 1)));
  INFO(message_of(metrics));
  REQUIRE(metrics.ok());
  CHECK(metrics->examples == 32);
  CHECK(std::isfinite(metrics->loss));
  CHECK(std::isfinite(metrics->accuracy));
  const auto piped = pipeline->evaluate(with_empty(points(4)));
  INFO(message_of(piped));
  REQUIRE(piped.ok());
  CHECK(piped->examples == 48);
  CHECK(std::isfinite(piped->loss));
  CHECK(trainer->evaluate(circle(64, 16, 0))->examples == 0);
  CHECK(trainer->evaluate(circle(64, 16, 0))->loss == 0);

  const Dataset one = *Dataset::from_tensors({*Tensor::zeros(DType::kFloat32, {4, 2})});
  const Dataset swapped =
      *Dataset::from_tensors({*Tensor::zeros(DType::kInt32, {4}), *Tensor::zeros(DType::kFloat32, {4, 2})});
  const Dataset wide =
      *Dataset::from_tensors({*Tensor::zeros(DType::kFloat32, {4, 3}), *Tensor::zeros(DType::kInt32, {4})});
  for (const Dataset& bad : {one.batch(2), swapped.batch(2), wide.batch(2), circle(64, 32, 1).batch(1)}) {
    CHECK_FALSE(trainer->evaluate(bad).ok());
    CHECK_FALSE(pipeline->evaluate(bad).ok());
  }
  CHECK(trainer->run(1).ok());  // training goes on after a test that failed
  CHECK(pipeline->run(1).ok());
}

// -- checkpoints ------------------------------------------------------------------------------------------------------

TEST_CASE("step() counts on from a restored step, and from 0 again after initialise()") {
  const Mode m = GENERATE(from_range(modes(0)));
  INFO(m.name);
  auto engine = engine_of(2);
  Snapshot half;
  {
    auto trainer = trainer_of(*engine, settings(*engine, m), circle(512, 16), one_layer);
    REQUIRE(trainer->initialise().ok());
    REQUIRE(trainer->run(6).ok());
    half = trainer->snapshot().value();
  }
  auto trainer = trainer_of(*engine, settings(*engine, m), circle(512, 16), one_layer);
  REQUIRE(trainer->restore(half).ok());
  CHECK(trainer->step() == 6);
  REQUIRE(trainer->initialise().ok());
  CHECK(trainer->step() == 0);
  REQUIRE(trainer->run(2).ok());
  CHECK(trainer->step() == 2);
  CHECK(trainer->snapshot()->variables.at("global_step").data<int64_t>()[0] == 2);
  CHECK(trainer->restore(half).error().code == Code::kFailedPrecondition);
}

TEST_CASE("a pipeline's step() counts from 0 again after initialise()") {
  auto engine = engine_of(2);
  const auto o = options_of_pipeline();
  Snapshot half;
  {
    auto pipeline = pipeline_of(*engine, stages_of(2), points(8), o);
    REQUIRE(pipeline->run(3).ok());
    half = engine->snapshot("piped").get().value();
  }
  auto pipeline = pipeline_of(*engine, stages_of(2), points(8), o);
  REQUIRE(pipeline->restore(half).ok());
  CHECK(pipeline->step() == 3);
  REQUIRE(pipeline->initialise().ok());
  CHECK(pipeline->step() == 0);
  REQUIRE(pipeline->run(2).ok());
  CHECK(pipeline->step() == 2);
  CHECK(pipeline->restore(half).error().code == Code::kFailedPrecondition);
}

TEST_CASE("a checkpoint that does not fit is restored in no part") {
  const Mode m = GENERATE(from_range(modes(1)));
  INFO(m.name);
  auto engine = engine_of(2);
  auto trainer = trainer_of(*engine, settings(*engine, m), circle(512, 16), one_layer);
  REQUIRE(trainer->initialise().ok());
  const Snapshot initial = trainer->snapshot().value();
  Snapshot good = initial;
  for (auto& [name, value] : good.variables)
    if (value.dtype() == DType::kFloat32)
      value = Tensor::of<float>(std::vector<float>(static_cast<size_t>(value.elements()), 5), value.shape());
  good.variables.at("global_step") = Tensor::scalar<int64_t>(9);
  for (const auto& [name, value] : good.variables)
    for (const bool dtype : {false, true}) {
      Snapshot bad = good;
      if (dtype) bad.variables.at(name) = *Tensor::zeros(DType::kInt8, value.shape());
      else bad.variables.at(name) = *Tensor::zeros(value.dtype(), {7, 7});
      INFO(name << (dtype ? " of another dtype" : " of another shape"));
      const Status refused = trainer->restore(bad);
      REQUIRE_FALSE(refused.ok());
      CHECK_THAT(refused.error().message, Catch::Contains(name));
      CHECK(identical(trainer->snapshot().value(), initial));
      CHECK(trainer->step() == 0);
    }
  REQUIRE(trainer->restore(good).ok());
  CHECK(trainer->step() == 9);
  CHECK(identical(trainer->snapshot().value(), good));
}

// -- after a failure --------------------------------------------------------------------------------------------------

TEST_CASE("a trainer that failed repeats its error, and still gives a snapshot, stops and is destroyed") {
  const Mode m = GENERATE(from_range(modes(0)));
  INFO(m.name);
  auto engine = engine_of(2);
  const Dataset bad = circle(512, 16).map([n = std::make_shared<int>(0)](Element e) -> Result<Element> {
    if (++*n == 7) return make_error(Code::kDataLoss, "batch seven is broken");
    return e;
  });
  auto trainer = trainer_of(*engine, settings(*engine, m), bad, one_layer);
  REQUIRE(trainer->initialise().ok());
  const std::string first = message_of(trainer->run(1000));
  CHECK_THAT(first, Catch::Contains("batch seven is broken"));
  CHECK(message_of(trainer->run(1)) == first);
  CHECK(message_of(trainer->run(0)) == first);
  CHECK(trainer->snapshot().ok());
  trainer->stop();
  CHECK(message_of(trainer->run(1)) == first);
  trainer.reset();
  CHECK(Trainer::create(*engine, one_layer, circle(64, 16), settings(*engine, m)).ok());
}

TEST_CASE("replicas that share a device train in every mode") {
  const Mode m = GENERATE(from_range(modes(1)));
  INFO(m.name);
  auto engine = engine_of(1);
  TrainerOptions o = settings(*engine, m);
  o.devices = {engine->devices()[0], engine->devices()[0], engine->devices()[0]};
  auto trainer = trainer_of(*engine, o, circle(512, 16), one_layer);
  REQUIRE(trainer->initialise().ok());
  CHECK(trainer->run(6)->updates == 6);
  CHECK(trainer->evaluate(circle(64, 16, 1))->examples == 64);
}

TEST_CASE("options of a trainer that make no sense are errors with their values") {
  auto engine = engine_of(2);
  const auto refused = [&](const std::string& text, const TrainerOptions& o, Dataset data = circle(64, 16)) {
    CHECK_THAT(message_of(Trainer::create(*engine, one_layer, std::move(data), o)), Catch::Contains(text));
  };
  const TrainerOptions good = settings(*engine, ReplicaMode::kSync);
  TrainerOptions o = good;
  o.queue_capacity = 0;
  refused("queue_capacity is 0", o);
  o = good;
  o.optimizer.rate = {};
  refused("no optimizer", o);
  o = good;
  o.input_device = "/gpu:7";
  refused("/gpu:7", o);
  for (const Mode& m : modes(1)) {
    o = settings(*engine, m);
    o.optimizer.clip = [](const Scope&, const std::vector<Output>&) { return std::vector<Output>(); };
    INFO(m.name);
    refused("clipping makes 0 gradients", o);
  }
  for (const Mode& m : modes(0)) {
    INFO(m.name);
    o = settings(*engine, m);
    o.optimizer.clip = [](const Scope&, const std::vector<Output>& g) { return std::vector<Output>(g.size()); };
    refused("would not be trained", o);
    o = settings(*engine, m);
    o.optimizer.update_rows = {};
    o.optimizer.update = [](const UpdateContext&) -> const Node* { return nullptr; };
    refused("gives no node", o);
    o = settings(*engine, m);
    o.optimizer.rate = cosine_decay(.1f, 5, 5);
    refused("cosine_decay", o);
  }
  o = good;
  o.name.clear();
  refused("a trainer needs a name", o);
  const ModelFn twice = [](const Scope& s, Variables& v, const std::vector<Output>& batch, bool) {
    const Output x = dense(s.scope("a"), v, batch[0], 2, "fc");
    return ModelOutputs{mean_all(s, dense(s.scope("b"), v, x, 2, "fc")), {}};
  };
  CHECK_THAT(message_of(Trainer::create(*engine, twice, circle(64, 16), good)),
             Catch::Contains("variable 'fc/kernel'") && Catch::Contains("a/'") && Catch::Contains("b/'"));
  CHECK_FALSE(Trainer::create(*engine, {}, circle(64, 16), good).ok());
  // What was refused has left nothing; and capacity has no bound.
  o = settings(*engine, ReplicaMode::kAsync);
  o.queue_capacity = std::numeric_limits<int>::max();
  CHECK(trainer_of(*engine, o, circle(64, 16), one_layer)->initialise().ok());
}

}  // namespace
}  // namespace troupe::nn
