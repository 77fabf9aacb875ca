// SPDX-License-Identifier: Apache-2.0
// A trainer or pipeline that is destroyed in a callback, where it cannot wait, ends the program in words; in a child
// after fork() it goes without one, and the parent's goes on.
#include <csignal>
#include <future>

#include "tests/child.h"
#include "tests/train/pipeline_fixture.h"
#include "tests/train/trainer_fixture.h"
#include "troupe/dataset_queue.h"

namespace troupe::nn {
namespace {

/// Lets `gone` go in a callback of the engine.
template <class T> void destroy_in_callback(Engine& engine, std::unique_ptr<T> gone) {
  Graph graph(engine.ops());
  const Scope scope(graph);
  Session session(engine, graph);
  std::promise<void> done;
  session.run_async({}, {scope.constant(1.f)}, {}, [&](RunResult) {
    gone.reset();
    done.set_value();
  });
  done.get_future().wait();
}

TEST_CASE("child: destroys a trainer (0) or pipeline (1) in a callback", "[.child]") {
  if (argument_of_child() < 0) return;
  const auto engine = engine_of(2);
  if (argument_of_child() == 0)
    destroy_in_callback(*engine, trainer_of(*engine, settings(*engine, ReplicaMode::kSync)));
  else
    destroy_in_callback(*engine, pipeline_of(*engine, stages_of(2), points(2),
                                             options_of(PipelineSchedule::kGPipe, 2, sgd(constant_rate(0.1f)))));
}

TEST_CASE("a trainer or pipeline that is destroyed in a callback ends the program with a line that says so") {
  for (const int which : {0, 1}) {
    const Ended ended = run_child("child: destroys a trainer (0) or pipeline (1) in a callback", which);
    INFO("status " << ended.status << ", signal " << ended.signal << ": " << ended.output);
    CHECK(ended.signal == SIGABRT);
    CHECK_THAT(ended.output, Catch::Contains("callback"));
  }
}

TEST_CASE("a child lets go of trainers and pipelines, also of those whose dataset is silent") {
  const auto engine = engine_of(2);
  auto trainer = trainer_of(*engine, settings(*engine, ReplicaMode::kSync));
  REQUIRE(trainer->initialise().ok());
  REQUIRE(trainer->run(2).ok());
  const Dataset model = points(1);
  const auto queue = DatasetQueue::create(model.dtypes(), model.shapes(), 4);
  REQUIRE(queue.ok());
  const auto push = [&] { REQUIRE(queue->push(**(*points(1).iterate())->next()).ok()); };
  PipelineOptions options = options_of(PipelineSchedule::kGPipe, 2, sgd(constant_rate(.1f)));
  options.container = "apart";
  auto pipeline = pipeline_of(*engine, stages_of(2), Dataset::from_queue(*queue), options);
  push();
  REQUIRE(pipeline->run(1).ok());
  CHECK(in_child([&] {
          if (trainer->run(1).ok() || pipeline->run(1).ok()) return 1;
          trainer.reset();
          pipeline.reset();
          return 0;
        }) == 0);
  CHECK(trainer->run(1)->updates == 1);
  push();
  CHECK(pipeline->run(1)->updates == 1);
}

}  // namespace
}  // namespace troupe::nn
