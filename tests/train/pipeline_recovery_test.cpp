// SPDX-License-Identifier: Apache-2.0
// Pipelines that lose tasks, over sockets.
#include <atomic>
#include <future>
#include <set>
#include <thread>

#include "tests/actors/socket_cluster.h"
#include "tests/op_library.h"
#include "tests/train/cluster_fixture.h"
#include "tests/train/pipeline_fixture.h"

namespace troupe::nn {

TEST_CASE("a pipeline that loses tasks ends with the bits of one that does not") {
  for (const PipelineSchedule schedule : {PipelineSchedule::kGPipe, PipelineSchedule::kOneFOneB}) {
    INFO("schedule " << static_cast<int>(schedule));
    constexpr int64_t kBatches = 12;
    PipelineOptions options = options_of(schedule, 2, adam(constant_rate(.02f)));
    const auto engine = Engine::create({.cpu_threads = {1, 1}, .op_library = testing::op_library()});
    REQUIRE(engine.ok());
    const auto whole = pipeline_of(**engine, stages_of(2, true, true), points(kBatches), options);
    REQUIRE(whole->run(kBatches).ok());
    const auto expected = values_of(**engine, whole->variables());

    SocketCluster cluster(2);
    const auto client = cluster.client();
    options.devices = worker_devices(2, 1);
    std::vector<TaskReport> told;
    options.recovery.on_task = [&](const TaskReport& report) {
      told.push_back(report);
      for (int i = 0; i < 2; ++i)
        if (!cluster.workers[static_cast<size_t>(i)]) cluster.start(i);
    };
    options.recovery.snapshot_interval =
        std::chrono::nanoseconds(schedule == PipelineSchedule::kGPipe ? 1 : 1'000'000'000);
    const auto pipeline = pipeline_of(*client, stages_of(2, true, true), points(kBatches), options);
    int killed = 0;
    const auto summary = pipeline->run(8, [&](const StepReport& report) {
      if (report.step == 3 + 2 * killed && killed < 2) cluster.workers[static_cast<size_t>(killed++)].reset();
    });
    INFO((summary.ok() ? std::string() : summary.error().str()));
    REQUIRE(summary.ok());
    CHECK(summary->updates == 8);
    CHECK(summary->losses == 2);
    CHECK(told.size() == 4);
    CHECK(pipeline->step() == 8);
    // Between runs, too, and while nobody waits for it.
    cluster.workers[1].reset();
    cluster.start(1);
    const auto tested = pipeline->evaluate(points(2));
    INFO((tested.ok() ? std::string() : tested.error().str()));
    CHECK(tested.ok());
    CHECK(pipeline->step() == 8);
    cluster.workers[0].reset();
    cluster.start(0);
    const auto rest = pipeline->run(kBatches - 8);
    INFO((rest.ok() ? std::string() : rest.error().str()));
    REQUIRE(rest.ok());
    CHECK(rest->updates == kBatches - 8);
    check_values(values_of(*client, pipeline->variables()), expected);
  }
}

TEST_CASE("snapshots that are asked for while a pipeline goes back are of the step that they name") {
  constexpr int64_t kBatches = 24;
  PipelineOptions options = options_of(PipelineSchedule::kOneFOneB, 2, adam(constant_rate(.02f)));
  const auto engine = Engine::create({.cpu_threads = {1, 1}, .op_library = testing::op_library()});
  REQUIRE(engine.ok());
  const auto whole = pipeline_of(**engine, stages_of(2, true, true), points(kBatches), options);
  std::vector<Snapshot> expected;
  for (int64_t step = 0; step <= kBatches; ++step) {
    if (step > 0) REQUIRE(whole->run(1).ok());
    expected.push_back(whole->snapshot().value());
  }

  SocketCluster cluster(2);
  const auto client = cluster.client();
  options.devices = worker_devices(2, 1);
  options.recovery.on_task = [&](const TaskReport&) {
    for (int i = 0; i < 2; ++i)
      if (!cluster.workers[static_cast<size_t>(i)]) cluster.start(i);
  };
  const auto pipeline = pipeline_of(*client, stages_of(2, true, true), points(kBatches), options);
  std::atomic<int> wrong = 0, failed = 0;
  std::vector<std::jthread> askers;
  for (int i = 0; i < 3; ++i)
    askers.emplace_back([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        const auto taken = pipeline->snapshot();
        const auto step = taken.ok() ? step_of(*taken) : Result<int64_t>(taken.error());
        failed += !step.ok();
        if (!step.ok()) continue;
        for (const auto& [name, value] : expected[static_cast<size_t>(*step)].variables)
          wrong += !taken->variables.contains(name) || !taken->variables.at(name).identical(value);
      }
    });
  int killed = 0;
  const auto summary = pipeline->run(kBatches, [&](const StepReport& report) {
    if (report.step >= 2 + 2 * killed && killed < 10) cluster.workers[static_cast<size_t>(killed++ % 2)].reset();
  });
  askers.clear();
  INFO((summary.ok() ? std::string() : summary.error().str()));
  REQUIRE(summary.ok());
  CHECK(summary->updates == kBatches);
  CHECK(wrong == 0);
  CHECK(failed == 0);
  const auto last = pipeline->snapshot();
  REQUIRE(last.ok());
  for (const auto& [name, value] : expected.back().variables) CHECK(last->variables.at(name).identical(value));
}

TEST_CASE("a pipeline's task that does not come back is the run's error, or a stop ends the wait") {
  for (const bool stops : {false, true}) {
    SocketCluster cluster(2);
    const auto client = cluster.client();
    PipelineOptions options = options_of(PipelineSchedule::kOneFOneB, 2, sgd(constant_rate(.1f)));
    options.devices = worker_devices(2, 1);
    if (!stops) options.recovery.wait = std::chrono::milliseconds(50);
    std::function<void()> on_task = [] {};
    options.recovery.on_task = [&](const TaskReport&) { on_task(); };
    const auto pipeline = pipeline_of(*client, stages_of(2, false), points(100), options);
    if (stops) on_task = [&] { pipeline->stop(); };
    const auto summary = pipeline->run(100, [&](const StepReport& report) {
      if (report.step == 3) cluster.workers[1].reset();
    });
    if (stops) {
      REQUIRE(summary.ok());
      CHECK(summary->stopped);
      on_task = [] {};
      cluster.start(1);
      CHECK(pipeline->run(2).ok());
    } else {
      REQUIRE_FALSE(summary.ok());
      CHECK_THAT(summary.error().str(), Catch::Contains("task:1"));
      CHECK_FALSE(pipeline->run(1).ok());
      const auto taken = pipeline->snapshot();
      INFO((taken.ok() ? "" : taken.error().str()));
      REQUIRE(taken.ok());
      CHECK(step_of(*taken).value() == 0);
    }
  }
}

TEST_CASE(
    "a pipeline that is stopped while a task is lost goes on from what it gives, by as many batches as are asked") {
  constexpr int64_t kBatches = 8;
  for (const bool keeps : {false, true}) {
    INFO((keeps ? "with" : "without") << " a snapshot before the loss");
    PipelineOptions options = options_of(PipelineSchedule::kOneFOneB, 2, adam(constant_rate(.02f)));
    const auto engine = Engine::create({.cpu_threads = {1, 1}, .op_library = testing::op_library()});
    REQUIRE(engine.ok());
    const auto whole = pipeline_of(**engine, stages_of(2, true, true), points(kBatches), options);

    SocketCluster cluster(2);
    const auto client = cluster.client();
    options.devices = worker_devices(2, 1);
    std::function<void()> on_loss;
    options.recovery.on_task = [&](const TaskReport& report) {
      if (!report.back) on_loss();
    };
    const auto pipeline = pipeline_of(*client, stages_of(2, true, true), points(kBatches), options);
    on_loss = [&] { pipeline->stop(); };
    int64_t kept = 0;
    const auto stopped = pipeline->run(kBatches, [&](const StepReport& report) {
      if (keeps && report.step == 1) kept = step_of(pipeline->snapshot().value()).value();
      if (report.step == 3) cluster.workers[1].reset();
    });
    INFO((stopped.ok() ? std::string() : stopped.error().str()));
    REQUIRE(stopped.ok());
    CHECK(stopped->stopped);
    CHECK(stopped->updates == kept);
    CHECK(pipeline->step() == kept);
    CHECK(step_of(pipeline->snapshot().value()).value() == kept);
    CHECK(pipeline->run(1).value().updates == 0);  // stopped likewise
    on_loss = [] {};
    cluster.start(1);
    const auto summary = pipeline->run(3);
    INFO((summary.ok() ? std::string() : summary.error().str()));
    REQUIRE(summary.ok());
    CHECK(summary->updates == 3);
    CHECK(pipeline->step() == kept + 3);
    REQUIRE(whole->run(kept + 3).ok());
    check_values(values_of(*client, pipeline->variables()), values_of(**engine, whole->variables()));
  }
}

TEST_CASE("a pipeline whose task is lost after each second update gets to its end") {
  constexpr int64_t kBatches = 6;
  SocketCluster cluster(2);
  const auto client = cluster.client();
  PipelineOptions options = options_of(PipelineSchedule::kOneFOneB, 2, sgd(constant_rate(.1f)));
  options.devices = worker_devices(2, 1);
  int made = 0, losses = 0;  // the first: updates since the last loss
  options.recovery.on_task = [&](const TaskReport& report) {
    if (report.back) made = 0;
    else if (!cluster.workers[1]) cluster.start(1);
  };
  const auto pipeline = pipeline_of(*client, stages_of(2, false), points(kBatches), options);
  const auto summary = pipeline->run(kBatches, [&](const StepReport&) {
    if (++made == 2 && losses < 20) cluster.workers[1].reset(), ++losses;
  });
  INFO((summary.ok() ? std::string() : summary.error().str()));
  REQUIRE(summary.ok());
  CHECK(summary->updates == kBatches);
  CHECK(losses <= kBatches);
}

TEST_CASE("a pipeline whose dataset or task fails again and again ends with that when its wait is over") {
  const auto wait = std::chrono::milliseconds(500);
  SocketCluster cluster(2);
  const auto client = cluster.client();
  PipelineOptions options = options_of(PipelineSchedule::kOneFOneB, 2, sgd(constant_rate(.1f)));
  options.devices = worker_devices(2, 1);
  options.recovery.wait = wait;
  const Dataset model = points(6);
  for (const int64_t good : {0, 3}) {
    INFO(good << " batches before it");
    const auto unavailable = points(6).map([read = std::make_shared<std::atomic<int64_t>>(0), good](Element batch) {
      if (read->fetch_add(1) % (good + 1) < good) return Result<Element>(std::move(batch));
      return Result<Element>(make_error(Code::kUnavailable, "the store of files is away"));
    });
    const auto pipeline = pipeline_of(*client, stages_of(2, false), unavailable, options);
    const auto begun = std::chrono::steady_clock::now();
    const auto summary = pipeline->run(6);
    REQUIRE_FALSE(summary.ok());
    CHECK_THAT(summary.error().str(), Catch::Contains("the store of files is away"));
    CHECK(std::chrono::steady_clock::now() - begun >= wait);
  }
  // A task that ends at each try.
  options.recovery.on_task = [&](const TaskReport& report) {
    if (report.back) cluster.workers[1].reset();
    else if (!cluster.workers[1]) cluster.start(1);
  };
  const auto pipeline = pipeline_of(*client, stages_of(2, false), model, options);
  cluster.workers[1].reset();
  const auto summary = pipeline->run(6);
  REQUIRE_FALSE(summary.ok());
  CHECK_THAT(summary.error().str(), Catch::Contains("task:1"));
}

TEST_CASE("a pipeline's failure at an earlier step than that of the last loss is another one") {
  constexpr auto wait = std::chrono::milliseconds(2000);
  SocketCluster cluster(2);
  const auto client = cluster.client();
  PipelineOptions options = options_of(PipelineSchedule::kOneFOneB, 2, sgd(constant_rate(.1f)));
  options.devices = worker_devices(2, 1);
  options.recovery.wait = wait;
  std::atomic<int> left = -1;  // batches before the failure; -1: none is due
  std::chrono::steady_clock::time_point until;
  const Dataset data = points(40).map([&](Element batch) {
    if (left < 0 || left-- > 0) return Result<Element>(std::move(batch));
    std::this_thread::sleep_until(until);
    return Result<Element>(make_error(Code::kUnavailable, "the store of files is away"));
  });
  std::vector<TaskReport> told;
  options.recovery.on_task = [&](const TaskReport& report) {
    told.push_back(report);
    if (told.size() == 1) until = std::chrono::steady_clock::now() + wait * 5 / 4;
    if (told.size() == 2) left = 4;
    if (!cluster.workers[1]) cluster.start(1);
  };
  const auto pipeline = pipeline_of(*client, stages_of(2, false), data, options);
  const auto summary = pipeline->run(30, [&](const StepReport& report) {
    if (report.step == 20 && told.empty()) cluster.workers[1].reset();
  });
  INFO((summary.ok() ? std::string() : summary.error().str()));
  REQUIRE(summary.ok());
  CHECK(summary->updates == 30);
  CHECK(summary->losses == 2);
  REQUIRE(told.size() == 4);
  CHECK(told[2].step < told[0].step);
}

TEST_CASE("a pipeline gets over each loss, however long ago the last one was") {
  SocketCluster cluster(2);
  const auto client = cluster.client();
  PipelineOptions options = options_of(PipelineSchedule::kOneFOneB, 2, sgd(constant_rate(.1f)));
  options.devices = worker_devices(2, 1);
  options.recovery.wait = std::chrono::seconds(2);
  const auto pipeline = pipeline_of(*client, stages_of(2, false), points(6), options);
  REQUIRE(pipeline->run(1).ok());
  for (int i = 0; i < 4; ++i) {
    cluster.workers[1].reset();
    cluster.start(1);
    const auto until = std::chrono::steady_clock::now() + options.recovery.wait / 2;
    do {
      const auto tested = pipeline->evaluate(points(2));
      INFO((tested.ok() ? std::string() : tested.error().str()));
      REQUIRE(tested.ok());
    } while (std::chrono::steady_clock::now() < until);
  }
}

TEST_CASE("a snapshot after a pipeline's run has all its updates, though a task was lost since") {
  constexpr int64_t kBatches = 9;
  PipelineOptions options = options_of(PipelineSchedule::kOneFOneB, 2, adam(constant_rate(.02f)));
  const auto engine = Engine::create({.cpu_threads = {1, 1}, .op_library = testing::op_library()});
  REQUIRE(engine.ok());
  const auto whole = pipeline_of(**engine, stages_of(2, true, true), points(kBatches), options);
  REQUIRE(whole->run(6).ok());
  const auto expected = whole->snapshot();
  REQUIRE(expected.ok());
  REQUIRE(whole->run(kBatches - 6).ok());

  SocketCluster cluster(2);
  const auto client = cluster.client();
  options.devices = worker_devices(2, 1);
  const auto pipeline = pipeline_of(*client, stages_of(2, true, true), points(kBatches), options);
  REQUIRE(pipeline->run(6).ok());
  pipeline->stop();  // is for the next run
  cluster.workers[1].reset();
  cluster.start(1);
  std::vector<std::future<Result<Snapshot>>> asked;
  for (int i = 0; i < 3; ++i) asked.push_back(std::async(std::launch::async, [&] { return pipeline->snapshot(); }));
  for (auto& one : asked) {
    const auto taken = one.get();
    INFO((taken.ok() ? std::string() : taken.error().str()));
    REQUIRE(taken.ok());
    CHECK(step_of(*taken).value() == 6);
    for (const auto& [name, value] : expected->variables) CHECK(taken->variables.at(name).identical(value));
  }
  CHECK(pipeline->step() == 6);
  const auto stopped = pipeline->run(1);
  REQUIRE(stopped.ok());
  CHECK(stopped->stopped);
  CHECK(stopped->losses == 1);
  const auto rest = pipeline->run(kBatches - 6);
  REQUIRE(rest.ok());
  CHECK(rest->updates == kBatches - 6);
  CHECK(rest->losses == 0);
  check_values(values_of(*client, pipeline->variables()), values_of(**engine, whole->variables()));
}

TEST_CASE("a test in a pipeline's run is made again where a task is lost, and the run goes on to the same bits") {
  constexpr int64_t kBatches = 8;
  PipelineOptions options = options_of(PipelineSchedule::kZeroBubble, 2, adam(constant_rate(.02f)));
  const auto engine = Engine::create({.cpu_threads = {1, 1}, .op_library = testing::op_library()});
  REQUIRE(engine.ok());
  const auto whole = pipeline_of(**engine, stages_of(2, true, true), points(kBatches), options);
  REQUIRE(whole->run(kBatches).ok());

  SocketCluster cluster(2);
  const auto client = cluster.client();
  options.devices = worker_devices(2, 1);
  int told = 0;
  options.recovery.on_task = [&](const TaskReport&) { ++told; };
  const auto pipeline = pipeline_of(*client, stages_of(2, true, true), points(kBatches), options);
  std::set<int64_t> due = {3, kBatches};  // amid the run, and when no batch is under way any more
  const auto summary = pipeline->run(kBatches, [&](const StepReport& report) {
    if (due.erase(report.step) == 0) return;
    cluster.workers[1].reset();
    cluster.start(1);
    const auto tested = pipeline->evaluate(points(2));
    INFO((tested.ok() ? std::string() : tested.error().str()));
    CHECK(tested.ok());
  });
  INFO((summary.ok() ? std::string() : summary.error().str()));
  REQUIRE(summary.ok());
  CHECK(summary->updates == kBatches);
  CHECK(summary->losses == 2);
  CHECK(told == 4);
  CHECK(pipeline->step() == kBatches);
  check_values(values_of(*client, pipeline->variables()), values_of(**engine, whole->variables()));
  // Of data that have ended, too, and where on_task throws.
  options.recovery.on_task = [&](const TaskReport& report) {
    if (report.step == 3) throw std::runtime_error("not now");
  };
  options.name = "another";
  const auto another = pipeline_of(*client, stages_of(2, false), points(4), options);
  const auto faulty = another->run(100, [&](const StepReport& report) {
    if (report.step != 3 && report.step != 4) return;
    cluster.workers[1].reset();
    cluster.start(1);
    (void)another->evaluate(points(2)).ok();
  });
  REQUIRE_FALSE(faulty.ok());
  CHECK_THAT(faulty.error().str(), Catch::Contains("not now"));
}

}  // namespace troupe::nn
