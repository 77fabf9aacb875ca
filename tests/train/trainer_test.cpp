// SPDX-License-Identifier: Apache-2.0
// The trainer in each mode on a small problem: it learns, repeats, resumes, stops, and reports faults.
#include <set>

#include "tests/train/trainer_fixture.h"
#include "troupe/trace.h"

namespace troupe::nn {
namespace {

TEST_CASE("every mode learns with several replicas") {
  const auto [mode, replicas, backups] =
      GENERATE(std::tuple(ReplicaMode::kSync, 2, 0), std::tuple(ReplicaMode::kAsync, 2, 0),
               std::tuple(ReplicaMode::kHybrid, 3, 1), std::tuple(ReplicaMode::kHybrid, 2, 0));
  auto engine = engine_of(replicas);
  auto trainer = trainer_of(*engine, settings(*engine, mode, backups));
  REQUIRE(trainer->initialise().ok());
  const auto before = trainer->evaluate(circle(500, 100, 1));
  REQUIRE(before.ok());
  int64_t reports = 0, examples = 0;
  for (int part = 1; part <= 3; ++part) {  // pauses in between
    auto summary = trainer->run(100, [&](const StepReport& r) {
      ++reports;
      examples += r.examples;
      CHECK(std::isfinite(r.loss));
    });
    INFO((summary.ok() ? std::string() : summary.error().str()));
    REQUIRE(summary.ok());
    CHECK(summary->updates == 100);
    CHECK_FALSE(summary->stopped);
    CHECK(trainer->step() == 100 * part);
    // Nothing moves between two runs.
    CHECK(identical(snapshot_of(*engine), snapshot_of(*engine)));
    CHECK(snapshot_of(*engine).variables.at("global_step").data<int64_t>()[0] == 100 * part);
  }
  const auto after = trainer->evaluate(circle(500, 100, 1));
  REQUIRE(after.ok());
  CHECK(after->examples == 500);
  CHECK(after->accuracy > 0.85);
  CHECK(after->loss < before->loss);
  CHECK(examples == (mode == ReplicaMode::kSync ? 64 : 32) * reports);
  CHECK(reports >= 300);
}

TEST_CASE("synchronous training repeats bit by bit") {
  const auto weights = [](int64_t seed) {
    auto engine = engine_of(3);
    TrainerOptions o = settings(*engine, ReplicaMode::kSync);
    o.seed = seed;
    auto trainer = trainer_of(*engine, o);
    REQUIRE(trainer->initialise().ok());
    REQUIRE(trainer->run(40).ok());
    return snapshot_of(*engine);
  };
  const Snapshot first = weights(1);
  CHECK(identical(first, weights(1)));
  CHECK_FALSE(identical(first, weights(2)));
}

TEST_CASE("two synchronous replicas are one with batches twice as large") {
  const auto plain = [](const Scope& s, Variables& v, const std::vector<Output>& batch, bool) {
    const Output logits = dense(s, v, tanh(s, dense(s, v, batch[0], 8, "hidden")), 2, "logits");
    return ModelOutputs{sparse_softmax_cross_entropy(s, logits, batch[1]), accuracy(s, logits, batch[1])};
  };
  const auto weights = [&](int replicas, int64_t batch) {
    auto engine = engine_of(replicas);
    auto trainer = trainer_of(*engine, settings(*engine, ReplicaMode::kSync), circle(512, batch), plain);
    REQUIRE(trainer->initialise().ok());
    REQUIRE(trainer->run(10).ok());
    return snapshot_of(*engine).variables.at("hidden/kernel");
  };
  const Tensor two = weights(2, 16), one = weights(1, 32);
  for (int64_t i = 0; i < two.elements(); ++i)
    CHECK(two.data<float>()[i] == Approx(one.data<float>()[i]).epsilon(1e-3).margin(1e-4));
}

TEST_CASE("training goes on from a snapshot") {
  auto engine = engine_of(2);
  Snapshot half;
  {
    auto trainer = trainer_of(*engine, settings(*engine, ReplicaMode::kAsync));
    REQUIRE(trainer->initialise().ok());
    REQUIRE(trainer->run(60).ok());
    half = snapshot_of(*engine);
    CHECK_FALSE(trainer->restore(half).ok());  // it has run
  }
  auto fresh = engine_of(2);
  auto trainer = trainer_of(*fresh, settings(*fresh, ReplicaMode::kHybrid));
  REQUIRE(trainer->restore(half).ok());
  CHECK(trainer->step() == 60);
  CHECK(snapshot_of(*fresh).variables.at("hidden/kernel").identical(half.variables.at("hidden/kernel")));
  REQUIRE(trainer->run(20).ok());
  CHECK(trainer->step() == 80);
}

TEST_CASE("a trainer keeps to its container") {
  const auto mode = GENERATE(ReplicaMode::kSync, ReplicaMode::kAsync, ReplicaMode::kHybrid);
  auto engine = engine_of(2);
  TrainerOptions o = settings(*engine, mode);
  o.container = "mine";
  auto trainer = trainer_of(*engine, o);
  REQUIRE(trainer->initialise().ok());
  REQUIRE(trainer->run(10).ok());
  auto mine = engine->snapshot("mine").get();
  REQUIRE(mine.ok());
  CHECK(mine->variables.at("global_step").data<int64_t>()[0] == 10);
  CHECK(snapshot_of(*engine).variables.empty());
}

TEST_CASE("a trainer that is gone leaves its variables, and its name to the next") {
  const auto mode = GENERATE(ReplicaMode::kSync, ReplicaMode::kAsync, ReplicaMode::kHybrid, ReplicaMode::kLocal);
  auto engine = engine_of(2);
  for (int round = 1; round <= 3; ++round) {
    auto trainer = trainer_of(*engine, settings(*engine, mode));
    const Snapshot before = snapshot_of(*engine);
    CHECK(before.variables.empty() == (round == 1));
    CHECK(Trainer::create(*engine, network, circle(512, 32), settings(*engine, mode)).error().code ==
          Code::kAlreadyExists);
    if (round == 1) REQUIRE(trainer->initialise().ok());
    else REQUIRE(trainer->restore(before).ok());
    REQUIRE(trainer->run(10).ok());
    CHECK(trainer->step() == 10 * round);
  }
  CHECK(snapshot_of(*engine).variables.at("global_step").data<int64_t>()[0] == 30);
  CHECK(engine->snapshot("train/replica_1").get()->variables.empty());
}

TEST_CASE("a trace has what every replica and the input did in each step") {
  const Mode mode = GENERATE(from_range(modes(1)));
  CAPTURE(mode.name);
  auto engine = engine_of(2);
  TrainerOptions o = settings(*engine, mode);
  o.trace = std::make_shared<Trace>();
  auto trainer = trainer_of(*engine, o);
  REQUIRE(trainer->initialise().ok());
  REQUIRE(trainer->run(10).ok());
  std::set<int64_t> losses[2], batches;
  std::set<uint32_t> updating;
  for (const TraceEvent& e : o.trace->take()) {
    const std::string op(e.node->op().name());
    if (op == "SparseSoftmaxCrossEntropyWithLogits") losses[e.device].insert(e.step);
    if (op == "IteratorGetNext" && e.kind == TraceEvent::Kind::kAnswer) batches.insert(e.step);
    if (op.find("ApplyAdam") != std::string::npos) updating.insert(e.device);
  }
  for (const auto& of_device : losses) CHECK(of_device.size() >= 1);
  CHECK(losses[0].size() + losses[1].size() >= 10);
  CHECK(batches.size() >= 10);
  CHECK_FALSE(updating.empty());
}

TEST_CASE("a resumed synchronous run, with dropout, continues bit by bit") {
  auto engine = engine_of(2);
  auto whole = trainer_of(*engine, settings(*engine, ReplicaMode::kSync), circle(512, 16));
  REQUIRE(whole->initialise().ok());
  REQUIRE(whole->run(10).ok());
  const Snapshot half = snapshot_of(*engine);
  REQUIRE(whole->run(10).ok());

  auto fresh = engine_of(2);
  auto rest = trainer_of(*fresh, settings(*fresh, ReplicaMode::kSync), circle(512, 16).skip(20));
  REQUIRE(rest->restore(half).ok());
  REQUIRE(rest->run(10).ok());
  CHECK(identical(snapshot_of(*engine), snapshot_of(*fresh)));
}

TEST_CASE("the snapshot of another model is not restored, one that lacks a variable is") {
  auto engine = engine_of(1);
  auto trainer = trainer_of(*engine, settings(*engine, ReplicaMode::kSync), circle(512, 16));
  REQUIRE(trainer->initialise().ok());
  Snapshot taken = trainer->snapshot().value();
  Snapshot other;
  for (const auto& [name, value] : taken.variables)
    other.variables[name == "global_step" ? name : "its/" + name] = value;
  for (const Snapshot& wrong : {Snapshot(), other}) {
    const Status status = trainer->restore(wrong);
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().code == Code::kInvalidArgument);
    CHECK_THAT(status.error().message, Catch::Contains("restore: the snapshot is "));
  }
  taken.variables.erase(trainer->variables().trainable().back().name);
  CHECK(trainer->restore(taken).ok());
}

TEST_CASE("training with blocks computed again, with dropout and batch norm, is the same bit by bit") {
  const auto blocks = [](const Scope& root, Variables& v, const std::vector<Output>& batch, bool training) {
    Output x = batch[0];
    for (const std::string name : {"first", "second"}) {
      const Scope s = root.scope(name);
      x = tanh(s, batch_norm(s, v, dense(s, v, x, 256, name), name + "_norm", training));
      x = dropout(s, v, x, 0.1f, training);
    }
    const Output logits = dense(root, v, x, 2, "logits");
    return ModelOutputs{sparse_softmax_cross_entropy(root, logits, batch[1]), accuracy(root, logits, batch[1])};
  };
  const auto weights = [&](std::vector<std::string> recompute) {
    auto engine = engine_of(2);
    TrainerOptions o = settings(*engine, ReplicaMode::kSync);
    o.gradients.recompute = std::move(recompute);
    auto trainer = trainer_of(*engine, o, circle(512, 64), blocks);
    CHECK(static_cast<bool>(trainer->graph().find("replica_1/gradients/replica_1/second/recompute")) ==
          !o.gradients.recompute.empty());
    REQUIRE(trainer->initialise().ok());
    REQUIRE(trainer->run(10).ok());
    return snapshot_of(*engine);
  };
  CHECK(identical(weights({}), weights({"first", "second"})));
}

TEST_CASE("the end of the data ends a run in every mode") {
  const auto mode = GENERATE(ReplicaMode::kSync, ReplicaMode::kAsync, ReplicaMode::kHybrid);
  auto engine = engine_of(2);
  auto trainer = trainer_of(*engine, settings(*engine, mode), circle(320, 32, 1));
  REQUIRE(trainer->initialise().ok());
  auto summary = trainer->run(1000);
  INFO((summary.ok() ? std::string() : summary.error().str()));
  REQUIRE(summary.ok());
  CHECK(summary->end_of_data);
  if (mode == ReplicaMode::kSync) CHECK(summary->updates == 5);
  if (mode == ReplicaMode::kAsync) CHECK(summary->updates == 10);
  if (mode == ReplicaMode::kHybrid) CHECK((summary->updates >= 1 && summary->updates <= 5));
}

TEST_CASE("stop ends a run after the steps in flight, and training can go on") {
  const auto mode = GENERATE(ReplicaMode::kSync, ReplicaMode::kAsync, ReplicaMode::kHybrid);
  auto engine = engine_of(2);
  auto trainer = trainer_of(*engine, settings(*engine, mode));
  REQUIRE(trainer->initialise().ok());
  int reports = 0;
  auto summary = trainer->run(1'000'000, [&](const StepReport&) {
    if (++reports == 10) trainer->stop();
  });
  REQUIRE(summary.ok());
  CHECK(summary->stopped);
  CHECK(summary->updates < 1'000'000);
  const int64_t before = trainer->step();
  REQUIRE(trainer->run(5).ok());
  CHECK(trainer->step() == before + 5);
}

TEST_CASE("a loss that is not finite stops with its step; checking names the node") {
  const bool check = GENERATE(false, true);
  auto engine = engine_of(2);
  TrainerOptions o = settings(*engine, ReplicaMode::kAsync);
  o.check_numerics = check;
  const auto broken = [](const Scope& s, Variables& v, const std::vector<Output>& batch, bool training) {
    ModelOutputs m = network(s, v, batch, training);
    // Finite at first, infinite from about the tenth update on.
    const Output step = s.op("Cast", {v.global_step(s)}, {{"DstT", DType::kFloat32}});
    const Output left = s.op("Maximum", {s.op("Sub", {s.constant(10.f), step}), s.constant(0.f)});
    m.loss = s.op("AddV2", {m.loss, s.named("broken").op("RealDiv", {s.constant(1.f), left})});
    return m;
  };
  auto trainer = trainer_of(*engine, o, circle(512, 32), broken);
  REQUIRE(trainer->initialise().ok());
  auto summary = trainer->run(1000);
  REQUIRE_FALSE(summary.ok());
  CHECK(summary.error().step.has_value());
  if (check) CHECK_THAT(summary.error().node, Catch::Contains("broken"));
  else CHECK_THAT(summary.error().message, Catch::Contains("inf"));
  CHECK_FALSE(trainer->run(1).ok());  // and it stays so
}

TEST_CASE("faults of data, model and options are errors") {
  auto engine = engine_of(2);
  SECTION("data") {
    Dataset bad = circle(320, 32).map([n = std::make_shared<int>(0)](Element e) -> Result<Element> {
      if (++*n == 5) return make_error(Code::kDataLoss, "row five is broken");
      return e;
    });
    auto trainer = trainer_of(*engine, settings(*engine, GENERATE(ReplicaMode::kSync, ReplicaMode::kAsync)), bad);
    REQUIRE(trainer->initialise().ok());
    auto summary = trainer->run(1000);
    REQUIRE_FALSE(summary.ok());
    CHECK_THAT(summary.error().message, Catch::Contains("row five is broken"));
  }
  SECTION("model") {
    const auto wrong = [](const Scope& s, Variables& v, const std::vector<Output>& batch, bool) {
      return ModelOutputs{mean_all(s, dense(s, v, batch[1], 3, "fc")), {}};
    };
    auto made = Trainer::create(*engine, wrong, circle(64, 32), settings(*engine, ReplicaMode::kSync));
    REQUIRE_FALSE(made.ok());
    CHECK_THAT(made.error().str(), Catch::Contains("fc"));
  }
  SECTION("options") {
    const auto refused = [&](const TrainerOptions& o) {
      auto made = Trainer::create(*engine, network, circle(64, 32), o);
      REQUIRE_FALSE(made.ok());
      CHECK(made.error().code == Code::kInvalidArgument);
    };
    refused(settings(*engine, ReplicaMode::kHybrid, 2));
    refused(settings(*engine, ReplicaMode::kSync, 1));
    TrainerOptions none = settings(*engine, ReplicaMode::kSync);
    none.optimizer = {};
    refused(none);
  }
  SECTION("devices; what was refused leaves nothing behind") {
    TrainerOptions o = settings(*engine, ReplicaMode::kSync);
    o.devices[1] = "/gpu:0";
    auto made = Trainer::create(*engine, network, circle(64, 32), o);
    REQUIRE_FALSE(made.ok());
    CHECK_THAT(made.error().message, Catch::Contains("\"/gpu:0\"; there are: ") && Catch::Contains("device:cpu:1"));
    CHECK(Trainer::create(*engine, network, circle(64, 32), settings(*engine, ReplicaMode::kSync)).ok());
  }
}

}  // namespace
}  // namespace troupe::nn
