// SPDX-License-Identifier: Apache-2.0
// Snapshots while a trainer runs: what step N holds is the same in every run, in every mode that promises it; and a
// trainer whose dataset is silent stops, is destroyed, and loses no batch.
#include <future>
#include <latch>
#include <thread>

#include "tests/repeats.h"
#include "tests/train/trainer_fixture.h"

namespace troupe::nn {
namespace {

constexpr Mode kModes[] = {kSyncMode, kRingMode, kZeroMode, kHybridMode, kLocalMode};  // that promise equal runs

/// Hybrid ones share a queue, and who gets which batch follows from who is first: of them one.
int replicas_of(const Mode& m) { return m.mode == ReplicaMode::kHybrid ? 1 : 2; }

TrainerOptions settings_of(const Engine& engine, const Mode& m) {
  TrainerOptions o = settings(engine, m);
  o.local_steps = m.mode == ReplicaMode::kLocal ? 3 : 1;
  return o;
}

TEST_CASE("a snapshot of step N is the same in every run, whenever it is taken") {
  const Mode m = GENERATE(from_range(std::begin(kModes), std::end(kModes)));
  INFO(m.name);
  std::map<int64_t, Snapshot> seen;
  int again = 0;
  for (int run = 0; run < std::max(3, repeats(8)); ++run) {
    auto engine = engine_of(replicas_of(m));
    auto trainer = trainer_of(*engine, settings_of(*engine, m));
    REQUIRE(trainer->initialise().ok());
    std::mt19937 random(static_cast<unsigned>(run));
    std::atomic<bool> stop = false;
    std::thread load([&] {
      for (volatile int64_t burn = 0; !stop;) burn = burn + 1;
    });
    std::vector<Snapshot> taken;
    auto summary = trainer->run(30, [&](const StepReport&) {
      if (random() % 2) return;
      auto snapshot = trainer->snapshot();
      REQUIRE(snapshot.ok());
      taken.push_back(std::move(*snapshot));
    });
    stop = true;
    load.join();
    REQUIRE(summary.ok());
    CHECK(summary->updates == 30);
    for (Snapshot& s : taken) {
      const int64_t step = s.variables.at("global_step").data<int64_t>()[0];
      const auto [at, fresh] = seen.try_emplace(step, s);
      if (!fresh) {
        ++again;
        INFO("step " << step);
        CHECK(identical(at->second, s));
      }
    }
  }
  CHECK(again > 0);
}

TEST_CASE("snapshots leave training as it is") {
  const Mode m = GENERATE(from_range(std::begin(kModes), std::end(kModes)));
  INFO(m.name);
  const auto weights = [&](bool snapshots) {
    auto engine = engine_of(replicas_of(m));
    auto trainer = trainer_of(*engine, settings_of(*engine, m));
    REQUIRE(trainer->initialise().ok());
    REQUIRE(trainer
                ->run(20,
                      [&](const StepReport&) {
                        if (snapshots) REQUIRE(trainer->snapshot().ok());
                      })
                .ok());
    return trainer->snapshot().value();
  };
  CHECK(identical(weights(false), weights(true)));
}

TEST_CASE("snapshots of an asynchronous trainer come from any thread while it runs") {
  auto engine = engine_of(3);
  auto trainer = trainer_of(*engine, settings(*engine, ReplicaMode::kAsync));
  REQUIRE(trainer->initialise().ok());
  std::atomic<bool> stop = false, all_taken = true;
  std::thread taker([&] {
    while (!stop)
      if (!trainer->snapshot().ok()) all_taken = false;
  });
  REQUIRE(trainer->run(200).ok());
  stop = true;
  taker.join();
  CHECK(all_taken);
}

/// Gives so many elements, then waits until it is told to go on.
class SourceGate {
 public:
  explicit SourceGate(int64_t open) : open_(open) {}
  void pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return open_ > 0 || all_; });
    --open_;
  }
  void open_all() {
    const std::lock_guard lock(mutex_);
    all_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t open_;
  bool all_ = false;
};

TEST_CASE("a trainer whose dataset falls silent stops at once, and goes on later without losing a batch") {
  const Mode m = GENERATE(from_range(std::begin(kModes), std::end(kModes)), kAsyncMode);
  INFO(m.name);
  const auto weights = [&](int64_t open) {
    auto gate = std::make_shared<SourceGate>(open);
    auto engine = engine_of(replicas_of(m));
    Dataset data = circle(512, 32).map([gate](Element e) -> Result<Element> {
      gate->pass();
      return e;
    });
    TrainerOptions o = settings_of(*engine, m);
    if (m.mode == ReplicaMode::kAsync) o.max_staleness = 0;
    auto trainer = trainer_of(*engine, o, data);
    REQUIRE(trainer->initialise().ok());
    int64_t updates = 0;
    if (open < 1000) {
      auto first = std::async([&] { return trainer->run(12); });
      while (trainer->step() == 0) std::this_thread::yield();
      trainer->stop();
      auto summary = first.get();
      INFO((summary.ok() ? "" : summary.error().str()));
      REQUIRE(summary.ok());
      CHECK(summary->stopped);
      updates = summary->updates;
      CHECK(trainer->snapshot().ok());
      gate->open_all();
    }
    auto rest = trainer->run(12 - updates);
    INFO((rest.ok() ? "" : rest.error().str()));
    REQUIRE(rest.ok());
    return trainer->snapshot().value();
  };
  const Snapshot whole = weights(1 << 20), parted = weights(9);
  if (m.mode == ReplicaMode::kSync) CHECK(identical(whole, parted));
  CHECK(whole.variables.at("global_step").identical(parted.variables.at("global_step")));
}

TEST_CASE("a trainer whose dataset is silent from the start stops, snapshots and is destroyed") {
  auto gate = std::make_shared<SourceGate>(0);
  auto engine = engine_of(2);
  Dataset data = circle(512, 32).map([gate](Element e) -> Result<Element> {
    gate->pass();
    return e;
  });
  for (const Mode& m : kModes) {
    INFO(m.name);
    auto trainer = trainer_of(*engine, settings_of(*engine, m), data);
    REQUIRE(trainer->initialise().ok());
    auto run = std::async([&] { return trainer->run(5); });
    CHECK(trainer->snapshot().ok());
    trainer->stop();
    auto summary = run.get();
    REQUIRE(summary.ok());
    CHECK(summary->updates == 0);
    CHECK(summary->stopped);
  }
  gate->open_all();
}

TEST_CASE("what on_step, a model or an optimizer throws is the error of its call") {
  auto engine = engine_of(2);
  auto trainer = trainer_of(*engine, settings(*engine, ReplicaMode::kSync));
  REQUIRE(trainer->initialise().ok());
  auto failed = trainer->run(10, [](const StepReport& r) {
    if (r.step == 3) throw std::runtime_error("at step 3");
  });
  REQUIRE_FALSE(failed.ok());
  CHECK_THAT(failed.error().message, Catch::Contains("at step 3"));
  CHECK(trainer->run(3).ok());
  TrainerOptions o = settings(*engine, ReplicaMode::kSync);
  o.name = "other";
  auto none = Trainer::create(
      *engine, [](const Scope&, Variables&, const std::vector<Output>&, bool) -> ModelOutputs { throw 7; },
      circle(64, 32), o);
  CHECK_FALSE(none.ok());
  o.optimizer.update = [](const UpdateContext&) -> const Node* { throw std::runtime_error("in an optimizer"); };
  auto bad = Trainer::create(*engine, network, circle(64, 32), o);
  REQUIRE_FALSE(bad.ok());
  CHECK_THAT(bad.error().message, Catch::Contains("in an optimizer"));
}

}  // namespace
}  // namespace troupe::nn
