// SPDX-License-Identifier: Apache-2.0
// A trainer or pipeline that is destroyed in a callback, where it cannot wait, ends the program in words.
#include <csignal>
#include <future>

#include "tests/child.h"
#include "tests/train/pipeline_fixture.h"
#include "tests/train/trainer_fixture.h"

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

}  // namespace
}  // namespace troupe::nn
