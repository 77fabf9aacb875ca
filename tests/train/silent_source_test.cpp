// SPDX-License-Identifier: Apache-2.0
// Pipelines whose dataset gives nothing for a while, or never: stop, errors and the end do not wait for it.
#include <future>
#include <thread>

#include "tests/train/pipeline_fixture.h"
#include "tests/train/trainer_fixture.h"
#include "troupe/dataset_queue.h"

namespace troupe::nn {
namespace {

using namespace std::chrono_literals;

DatasetQueue queue_of_points(int64_t capacity = 16) {
  const Dataset model = points(1);
  auto queue = DatasetQueue::create(model.dtypes(), model.shapes(), capacity);
  REQUIRE(queue.ok());
  return *queue;
}

/// Pushes the batches of points(n).
void push_points(const DatasetQueue& queue, int n) {
  const auto it = *points(n).iterate();
  for (int i = 0; i < n; ++i) REQUIRE(queue.push(**it->next()).ok());
}

struct Silent : Fixture {
  explicit Silent(int64_t capacity = 16)
      : Fixture(2), queue(queue_of_points(capacity)),
        pipeline(pipeline_of(*engine, stages_of(2), Dataset::from_queue(queue),
                             options_of(PipelineSchedule::kOneFOneB, 2, sgd(constant_rate(.1f))))) {}
  std::future<Result<RunSummary>> run(int64_t batches, std::function<void(const StepReport&)> on_step = {}) {
    return std::async(std::launch::async, [this, batches, on_step] { return pipeline->run(batches, on_step); });
  }
  DatasetQueue queue;
  std::unique_ptr<Pipeline> pipeline;
};

TEST_CASE("stop ends a run whose dataset is silent, and the batch that comes later is the next run's") {
  Silent s;
  push_points(s.queue, 2);
  std::promise<void> reported;
  auto run = s.run(5, [&, n = 0](const StepReport&) mutable {
    if (++n == 2) reported.set_value();
  });
  // Reports come though the dataset has no third batch.
  REQUIRE(reported.get_future().wait_for(60s) == std::future_status::ready);
  s.pipeline->stop();
  REQUIRE(run.wait_for(60s) == std::future_status::ready);
  auto summary = run.get();
  REQUIRE(summary.ok());
  CHECK(summary->stopped);
  CHECK_FALSE(summary->end_of_data);
  CHECK(summary->updates == 2);

  for (int i = 0; i < 3; ++i) {
    auto silent = s.run(1);
    s.pipeline->stop();
    REQUIRE(silent.wait_for(60s) == std::future_status::ready);
    CHECK(silent.get()->stopped);
  }

  push_points(s.queue, 3);
  s.queue.close();
  summary = s.pipeline->run(10);
  REQUIRE(summary.ok());
  CHECK(summary->updates == 3);  // none was lost
  CHECK(summary->end_of_data);
  CHECK_FALSE(summary->stopped);
}

TEST_CASE("a pipeline takes no batch ahead of those it was asked for") {
  Silent s;
  push_points(s.queue, 4);
  REQUIRE(s.pipeline->run(3)->updates == 3);
  CHECK(s.queue.size() == 1);
}

TEST_CASE("a pipeline ends while its dataset is silent") {
  {
    Silent s;
    push_points(s.queue, 1);
    std::promise<void> reported;
    auto run = s.run(2, [&](const StepReport&) { reported.set_value(); });
    REQUIRE(reported.get_future().wait_for(60s) == std::future_status::ready);
    s.pipeline->stop();
    REQUIRE(run.wait_for(60s) == std::future_status::ready);
    s.pipeline.reset();
    CHECK(s.queue.push(**(*points(1).iterate())->next()).error().code == Code::kCancelled);
  }
  // A function that nobody can tell: it is left behind.
  const auto gate = std::make_shared<std::promise<void>>();
  Fixture f(2);
  auto silent = Dataset::from_function(
      [opened = gate->get_future().share()]() -> Result<std::optional<Element>> {
        opened.wait();
        return std::optional<Element>();
      },
      points(1).dtypes(), points(1).shapes());
  REQUIRE(silent.ok());
  auto pipeline = pipeline_of(*f.engine, stages_of(2), *silent,
                              options_of(PipelineSchedule::kOneFOneB, 2, sgd(constant_rate(.1f))));
  auto run = std::async(std::launch::async, [&] { return pipeline->run(1); });
  pipeline->stop();
  REQUIRE(run.wait_for(60s) == std::future_status::ready);
  const auto before = std::chrono::steady_clock::now();
  pipeline.reset();
  CHECK(std::chrono::steady_clock::now() - before < 30s);
  gate->set_value();
}

TEST_CASE("a step that fails ends a run whose dataset is silent") {
  Silent s;
  const auto it = *points(1).iterate();
  Element batch = **it->next();
  batch[0] = Tensor::of<float>(std::vector<float>(24 * 8, std::numeric_limits<float>::quiet_NaN()), {24, 8});
  REQUIRE(s.queue.push(batch).ok());
  auto run = s.run(2);
  REQUIRE(run.wait_for(60s) == std::future_status::ready);
  CHECK_THAT(run.get().error().message, Catch::Contains("the loss is nan"));
}

TEST_CASE("stop ends an evaluation whose dataset is silent") {
  Silent s;
  const DatasetQueue tests = queue_of_points();
  push_points(tests, 1);
  auto evaluation = std::async(std::launch::async, [&] { return s.pipeline->evaluate(Dataset::from_queue(tests)); });
  while (tests.size() > 0) std::this_thread::yield();
  s.pipeline->stop();
  REQUIRE(evaluation.wait_for(60s) == std::future_status::ready);
  CHECK(evaluation.get().error().code == Code::kCancelled);

  push_points(s.queue, 1);
  CHECK(s.pipeline->run(1)->updates == 1);  // that stop is done with
  const DatasetQueue others = queue_of_points();
  push_points(others, 2);
  others.close();
  const auto metrics = s.pipeline->evaluate(Dataset::from_queue(others));
  REQUIRE(metrics.ok());
  CHECK(metrics->examples == 48);
}

TEST_CASE("stop ends a trainer's evaluation whose dataset is silent") {
  auto engine = engine_of(1);
  auto trainer = trainer_of(*engine, settings(*engine, ReplicaMode::kSync));
  REQUIRE(trainer->initialise().ok());
  const Dataset model = circle(64, 32);
  const auto tests = DatasetQueue::create(model.dtypes(), model.shapes(), 4);
  REQUIRE(tests.ok());
  REQUIRE(tests->push(**(*model.iterate())->next()).ok());
  auto evaluation = std::async(std::launch::async, [&] { return trainer->evaluate(Dataset::from_queue(*tests)); });
  while (tests->size() > 0) std::this_thread::yield();
  trainer->stop();
  REQUIRE(evaluation.wait_for(60s) == std::future_status::ready);
  CHECK(evaluation.get().error().code == Code::kCancelled);
  CHECK(trainer->run(2)->updates == 2);  // that stop is done with
  CHECK(trainer->evaluate(circle(64, 32, 1))->examples == 64);
}

TEST_CASE("what on_step or a model throws is the error of a pipeline's call") {
  Fixture f(2);
  const auto options = options_of(PipelineSchedule::kOneFOneB, 2, sgd(constant_rate(.1f)));
  const StageFn throwing = [](const Scope&, Variables&, const std::vector<Output>&, const std::vector<Output>&,
                              bool) -> std::vector<Output> { throw std::runtime_error("in a model"); };
  const auto none = Pipeline::create(*f.engine, {throwing, StageFn(last)}, points(1), options);
  REQUIRE_FALSE(none.ok());
  CHECK_THAT(none.error().message, Catch::Contains("in a model"));
  auto pipeline = pipeline_of(*f.engine, stages_of(2), points(8), options);
  const auto thrown = pipeline->run(5, [](const StepReport& r) {
    if (r.step == 2) throw std::runtime_error("at step 2");
  });
  REQUIRE_FALSE(thrown.ok());
  CHECK_THAT(thrown.error().message, Catch::Contains("at step 2"));
  const int64_t before = pipeline->step();
  CHECK(pipeline->run(1)->updates == 1);
  CHECK(pipeline->step() == before + 1);
}

TEST_CASE("a call of a trainer or pipeline that would wait for itself is an error") {
  Fixture f(2);
  auto pipeline = pipeline_of(*f.engine, stages_of(2), points(8),
                              options_of(PipelineSchedule::kOneFOneB, 2, sgd(constant_rate(.1f))));
  auto trainer = trainer_of(*f.engine, settings(*f.engine, ReplicaMode::kSync));
  std::promise<std::vector<Code>> codes;
  f.session->run_async({}, {f.s.constant(1.f)}, {}, [&](RunResult) {
    const auto code = [](const auto& result) { return result.ok() ? Code::kInternal : result.error().code; };
    codes.set_value({code(pipeline->run(1)), code(pipeline->evaluate(points(1))), code(pipeline->initialise()),
                     code(trainer->run(1)), code(trainer->evaluate(circle(64, 32, 1))), code(trainer->initialise()),
                     code(trainer->snapshot())});
  });
  for (const Code code : codes.get_future().get()) CHECK(code == Code::kFailedPrecondition);
  CHECK(pipeline->run(1).ok());
}

TEST_CASE("what a dataset throws is the error of the run") {
  Fixture f(2);
  for (const bool waits : {false, true}) {
    struct Throwing final : Dataset::Stage {
      explicit Throwing(bool waits) : waits(waits) {}
      Result<std::unique_ptr<DatasetIterator>> iterate() const override {
        struct Iterator final : DatasetIterator {
          Result<std::optional<Element>> next() override { throw std::runtime_error("from the source"); }
        };
        return std::unique_ptr<DatasetIterator>(new Iterator());
      }
      std::vector<DType> dtypes() const override { return points(1).dtypes(); }
      std::vector<PartialShape> shapes() const override { return points(1).shapes(); }
      bool may_wait() const override { return waits; }
      const bool waits;
    };
    auto options = options_of(PipelineSchedule::kOneFOneB, 2, sgd(constant_rate(.1f)));
    options.name = waits ? "waits" : "does not";
    options.container = options.name;
    auto pipeline = pipeline_of(*f.engine, stages_of(2), Dataset(std::make_shared<Throwing>(waits)), options);
    const auto run = pipeline->run(1);
    REQUIRE_FALSE(run.ok());
    CHECK_THAT(run.error().message, Catch::Contains("from the source"));
  }
}

}  // namespace
}  // namespace troupe::nn
