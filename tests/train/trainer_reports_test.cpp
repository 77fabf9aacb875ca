// SPDX-License-Identifier: Apache-2.0
// Reports of a run whose on_step is slower than its steps: credit bounds those that wait, none is lost, and a snapshot
// tells of which step it is.
#include <algorithm>

#include "tests/repeats.h"
#include "tests/train/trainer_fixture.h"

namespace troupe::nn {
namespace {

constexpr int kReplicas = 2;

ModelOutputs reported_model(const Scope& s, Variables& v, const std::vector<Output>& batch, bool) {
  const Output logits = dense(s, v, batch[0], 2, "logits");
  return {sparse_softmax_cross_entropy(s, logits, batch[1]), accuracy(s, logits, batch[1])};
}

TEST_CASE("a run is as far ahead of a slow on_step as its credit, and reports no more after a stop") {
  const Mode m = GENERATE(from_range(modes(0)));
  INFO(m.name);
  auto engine = engine_of(kReplicas);
  const TrainerOptions options = settings(*engine, m);
  auto trainer = trainer_of(*engine, options, circle(512, 4), reported_model);
  REQUIRE(trainer->initialise().ok());
  const Dataset tests = circle(64, 4, 1);
  const int64_t many = repeats(400);  // more than the credit
  int64_t reports = 0, ahead = 0;
  auto summary = trainer->run(1 << 20, [&](const StepReport& r) {
    if (++reports > many) return trainer->stop();
    // Steps of the same devices: without credit, training makes as many meanwhile.
    REQUIRE(trainer->evaluate(tests).ok());
    ahead = std::max(ahead, trainer->step() - r.step);
  });
  REQUIRE(summary.ok());
  CHECK(summary->stopped);
  CHECK(ahead <= kMostReports * (m.mode == ReplicaMode::kAsync ? kReplicas : 1));
  // In kLocal the replica that is behind catches up, with its part of a round at most; in kHybrid the update at work
  // may wait for one more gradient of each.
  const int64_t behind = m.mode == ReplicaMode::kLocal    ? options.local_steps
                         : m.mode == ReplicaMode::kHybrid ? kReplicas
                                                          : 0;
  CHECK(reports <= many + 1 + kMostReports * kReplicas + behind);
  if (m.mode == ReplicaMode::kSync || m.mode == ReplicaMode::kAsync) CHECK(reports == summary->updates);
  if (m.mode == ReplicaMode::kHybrid) CHECK(reports >= kReplicas * summary->updates);
  if (m.mode == ReplicaMode::kLocal) CHECK(reports == kReplicas * summary->updates);
  CHECK(trainer->run(100)->updates == 100);  // without on_step, after it
}

TEST_CASE("a snapshot in on_step is of the report's step or later, and tells which") {
  const Mode m = GENERATE(from_range(modes(1)));
  INFO(m.name);
  auto engine = engine_of(kReplicas);
  TrainerOptions o = settings(*engine, m);
  // An average further away than the credit reaches.
  const int64_t local_steps = 3 * kMostReports;
  if (m.mode == ReplicaMode::kLocal) o.local_steps = local_steps;
  auto trainer = trainer_of(*engine, o, circle(512, 4), reported_model);
  REQUIRE(trainer->initialise().ok());
  int64_t taken = 0, last = 0;
  auto summary = trainer->run(2 * local_steps, [&](const StepReport& r) {
    if (r.step % kMostReports != 1) return;
    const auto snapshot = trainer->snapshot();
    REQUIRE(snapshot.ok());
    const auto step = step_of(*snapshot);
    REQUIRE(step.ok());
    CHECK(*step >= std::max(r.step, last));
    // In kAsync updates are made before the trainer counts them, one of each replica at most.
    CHECK(*step <= trainer->step() + (m.mode == ReplicaMode::kAsync ? kReplicas : 0));
    last = *step;
    if (m.mode == ReplicaMode::kLocal) CHECK(*step % local_steps == 0);
    ++taken;
  });
  REQUIRE(summary.ok());
  CHECK(summary->updates == 2 * local_steps);
  CHECK(taken > 0);
  CHECK(step_of(trainer->snapshot().value()).value() == trainer->step());
}

TEST_CASE("an on_step that throws ends a run that waits for its credit") {
  const Mode m = GENERATE(from_range(modes(0)));
  INFO(m.name);
  auto engine = engine_of(kReplicas);
  auto trainer = trainer_of(*engine, settings(*engine, m), circle(512, 4), reported_model);
  REQUIRE(trainer->initialise().ok());
  const Dataset tests = circle(64, 4, 1);
  const auto failed = trainer->run(1 << 20, [&](const StepReport&) {
    for (int i = 0; i < 50; ++i) REQUIRE(trainer->evaluate(tests).ok());
    throw std::runtime_error("too slow");
  });
  REQUIRE_FALSE(failed.ok());
  CHECK_THAT(failed.error().message, Catch::Contains("too slow"));
  CHECK(trainer->run(10)->updates == 10);
}

TEST_CASE("a snapshot without a global step has none to tell") {
  CHECK_THAT(step_of({}).error().message, Catch::Contains("must have a variable 'global_step'"));
  const auto wrong = step_of({{{"global_step", Tensor::scalar(2.f)}}});
  REQUIRE_FALSE(wrong.ok());
  CHECK_THAT(wrong.error().message, Catch::Contains("must be an int64 scalar, got float32[]"));
}

}  // namespace
}  // namespace troupe::nn
