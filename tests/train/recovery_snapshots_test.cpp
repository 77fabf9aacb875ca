// SPDX-License-Identifier: Apache-2.0
// What trainers that may lose tasks keep to go back to, and when.
#include <atomic>
#include <semaphore>
#include <thread>

#include "tests/repeats.h"
#include "tests/train/loss_fixture.h"
#include "train/snapshot_interval.h"

namespace troupe::nn {

TEST_CASE("snapshots to go back to take a hundredth of the time, or come as often as they are asked for") {
  using std::chrono::milliseconds, std::chrono::seconds;
  RecoveryOptions options;
  CHECK(snapshot_interval(options, milliseconds(0)) == seconds(1));
  CHECK(snapshot_interval(options, milliseconds(7)) == seconds(1));
  CHECK(snapshot_interval(options, milliseconds(50)) == seconds(5));
  CHECK(snapshot_interval(options, seconds(4)) == seconds(30));
  CHECK(snapshot_interval(options, std::chrono::nanoseconds::max()) == seconds(30));
  options.snapshot_interval = milliseconds(1);
  CHECK(snapshot_interval(options, seconds(4)) == milliseconds(1));
  options.snapshot_interval = std::chrono::nanoseconds::max();
  CHECK(snapshot_interval(options, seconds(0)) == std::chrono::nanoseconds::max());
}

TEST_CASE("a run keeps snapshots at its interval, also without on_step and after a loss") {
  for (const bool reports : {false, true}) {
    if (kSlowness > 1 && reports) continue;
    INFO((reports ? "with" : "without") << " on_step");
    std::atomic<int64_t> until_kill = 100;  // batches that are read
    std::atomic<bool> failed = false;
    std::counting_semaphore<> due(0);
    const Dataset data = circle(512, 32).map([&](Element batch) {
      if (--until_kill == 0) due.release();
      return batch;
    });
    LossFixture f(
        2, kSyncMode, [](TrainerOptions& o) { o.recovery.snapshot_interval = std::chrono::milliseconds(1); }, data);
    f.restarts = false;
    std::jthread killer([&](const std::stop_token& stop) {
      const std::stop_callback wake(stop, [&] { due.release(); });
      for (due.acquire(); !stop.stop_requested() && !failed; due.acquire()) {
        f.kill(1);
        if (!f.cluster.try_start(1).ok()) failed = true;
      }
    });
    int64_t last = 0;
    int later = 0, losses = 0;
    f.on_task = [&](const TaskReport& report) {
      if (!report.back) return;
      later += report.step > last;
      last = report.step;
      if (later == 3 || ++losses == 30 || failed) f.trainer->stop();
      else until_kill = 2 * report.step + 100;  // what it goes back by is read again
    };
    f.run(1'000'000, reports ? [](const StepReport&) {} : std::function<void(const StepReport&)>());
    killer.request_stop();
    killer.join();
    CHECK_FALSE(failed);
    CHECK(later == 3);
  }
}

TEST_CASE("runs that are shorter than the interval keep snapshots at it, too") {
  using Clock = std::chrono::steady_clock;
  constexpr auto kInterval = std::chrono::milliseconds(200);
  LossFixture f(2, kSyncMode, [&](TrainerOptions& o) { o.recovery.snapshot_interval = kInterval; });
  for (const auto end = Clock::now() + 3 * kInterval; Clock::now() < end;) f.run(1);
  f.kill(1);
  f.start_missing();
  f.run(1);
  REQUIRE(f.told.size() == 2);
  CHECK(f.told[1].back);
  CHECK(f.told[1].step > 0);
}

TEST_CASE("local replicas run no further ahead of on_step for snapshots that nobody asks for") {
  std::atomic<int64_t> read = 0;
  const Dataset data = circle(512, 32).map([&](Element batch) {
    ++read;
    return batch;
  });
  LossFixture f(
      2, kLocalMode,
      [](TrainerOptions& o) {
        o.local_steps = 10 * kMostReports;
        o.recovery.snapshot_interval = std::chrono::nanoseconds(1);
      },
      data);
  int64_t reported = 0, ahead = 0;
  const Dataset tests = circle(512, 32, 1, 5);
  f.run(1'000'000, [&](const StepReport&) {
    if (++reported > kMostReports) return;
    CHECK(f.trainer->evaluate(tests).ok());  // takes longer than some steps
    ahead = std::max(ahead, read - reported);
    if (reported == kMostReports) f.trainer->stop();
  });
  CHECK(ahead <= 2 * kMostReports + 32);  // those in queues and on the way to them, too
}

TEST_CASE("a stop between two runs keeps no snapshot from updates that are made again") {
  for (const Mode& mode : {kSyncMode, kAsyncMode, kHybridMode, kLocalMode}) {
    INFO(mode.name);
    LossFixture f(2, mode);
    f.run(5);
    f.trainer->stop();
    f.kill(0);
    f.start_missing();
    CHECK(step_of(f.snapshot()).value() == f.trainer->step());
    CHECK(f.run(5).stopped);  // it was for this one
    CHECK(f.run(5).updates == 5);
  }
}

}  // namespace troupe::nn
