// SPDX-License-Identifier: Apache-2.0
// Trainers whose replicas are on devices of several tasks: what one engine with as many devices does, bit for bit where
// that is promised; variables live in one task each.
#include <future>

#include "tests/train/cluster_fixture.h"
#include "tests/train/trainer_fixture.h"

namespace troupe::nn {
namespace {

constexpr int64_t kUpdates = 6;

struct Outcome {
  std::vector<float> losses;
  double test_loss = 0;
  std::map<std::string, Tensor> variables;
};

Outcome train(Engine& engine, const TrainerOptions& options, const ModelFn& model = network,
              int64_t updates = kUpdates) {
  const auto trainer = trainer_of(engine, options, circle(512, 32), model);
  Outcome out;
  if (const Status begun = trainer->initialise(); !begun.ok()) FAIL(begun.error().str());
  const auto summary = trainer->run(updates, [&](const StepReport& r) { out.losses.push_back(r.loss); });
  INFO((summary.ok() ? std::string() : summary.error().str()));
  REQUIRE(summary.ok());
  CHECK(summary->updates == updates);
  CHECK(trainer->step() == updates);
  const auto tested = trainer->evaluate(circle(96, 32, 1, 5));
  INFO((tested.ok() ? std::string() : tested.error().str()));
  REQUIRE(tested.ok());
  out.test_loss = tested->loss;
  out.variables = values_of(engine, trainer->variables());
  CHECK(out.variables.at("global_step").data<int64_t>()[0] == updates);
  check_homes(trainer->graph());
  return out;
}

void check_outcome(const Outcome& got, const Outcome& expected) {
  CHECK(got.losses == expected.losses);
  CHECK(got.test_loss == Approx(expected.test_loss).epsilon(1e-6));  // devices end their batches in any order
  check_values(got.variables, expected.variables);
}

/// The means of the first and the last third of losses, and that they fell.
void check_fell(const std::vector<float>& losses) {
  const auto third = static_cast<std::ptrdiff_t>(losses.size() / 3);
  const auto mean = [&](auto begin) { return std::accumulate(begin, begin + third, 0.f) / static_cast<float>(third); };
  CHECK(mean(losses.end() - third) < mean(losses.begin()));
}

Output rows_of_table(const Scope& s, Variables& v, const std::vector<Output>& batch) {
  const Output x = embedding(s, v, batch[1], 50, 8, "words");
  return s.op("ConcatV2", {x, batch[0], s.constant(1)});
}
ModelOutputs with_table(const Scope& s, Variables& v, const std::vector<Output>& batch, bool training) {
  const Output x = rows_of_table(s, v, batch);
  return network(s, v, {dense(s, v, x, 4, "first"), batch[1]}, training);
}

/// The task of each variable's handles, by name: of those of the model in the trainer's container.
std::map<std::string, std::string> homes_of(const Trainer& trainer) {
  std::map<std::string, std::string> out;
  const Graph& graph = trainer.graph();
  for (int id = 0; id < graph.size(); ++id)
    if (graph.node(id).op().name() == "VarHandleOp")
      out[*graph.node(id).attrs().get<std::string>("shared_name")] = task_of(graph.node(id).device());
  return out;
}

TEST_CASE("synchronous replicas on several tasks give the bits of one engine") {
  for (const Mode& mode : {kSyncMode, kRingMode, kZeroMode})
    for (const auto& [tasks, devices] : {std::pair(3, 1), std::pair(2, 2)}) {
      if (kSlowness > 1 && (tasks == 3) == mode.sharded) continue;
      INFO(mode.name << " on " << tasks << " tasks");
      const auto engine = engine_of(tasks * devices);
      const Outcome expected = train(*engine, settings(*engine, mode));
      FakeCluster cluster(static_cast<uint32_t>(tasks), tasks, devices);
      TrainerOptions options = settings(*engine, mode);
      options.devices = worker_devices(tasks, devices);
      check_outcome(train(*cluster.client, options), expected);
    }
}

TEST_CASE("the client's own devices may be among those of replicas, and names without a task are its own") {
  const auto engine = engine_of(3);
  FakeCluster cluster(4, 2, 1);
  for (const Mode& mode : {kSyncMode, kRingMode}) {
    const Outcome expected = train(*engine, settings(*engine, mode));
    TrainerOptions options = settings(*engine, mode);
    options.container = options.name = mode.name;
    options.devices = {"/cpu:0", "/job:worker/task:0", "/job:worker/task:1/cpu:0"};
    check_outcome(train(*cluster.client, options), expected);
    std::rotate(options.devices.begin(), options.devices.begin() + 1, options.devices.end());
    options.container = options.name = std::string(mode.name) + "_rotated";
    check_outcome(train(*cluster.client, options), expected);
  }
}

TEST_CASE("tables, clipping, decay and every form of input give the bits of one engine") {
  Optimizer rows = adagrad(constant_rate(.1f)), decays = momentum(constant_rate(.05f));
  decays.weight_decay = decays.l2 = .01f;
  decays.clip = clip_by_global_norm(1);
  const auto engine = engine_of(2);
  FakeCluster cluster(5, 2, 1);
  int number = 0;
  for (const Mode& mode : {kSyncMode, kRingMode, kZeroMode})
    for (const Optimizer& optimizer : {rows, decays}) {
      if (kSlowness > 1 && static_cast<bool>(optimizer.clip) == mode.sharded) continue;
      INFO(mode.name << (optimizer.clip ? ", clipped" : ""));
      TrainerOptions options = settings(*engine, mode);
      options.optimizer = optimizer;
      options.container = options.name = fmt::format("model_{}", number++);
      const Outcome expected = train(*engine, options, with_table);
      options.devices = worker_devices(2, 1);
      if (optimizer.clip) options.input_device = "/job:worker/task:1";
      check_outcome(train(*cluster.client, options, with_table), expected);
    }
}

TEST_CASE("local replicas on several tasks give the bits of one engine") {
  const auto engine = engine_of(3);
  TrainerOptions options = settings(*engine, kLocalMode);
  options.local_steps = 4;
  const Outcome expected = train(*engine, options, network, 24);
  FakeCluster cluster(6, 3, 1);
  options.devices = worker_devices(3, 1);
  const Outcome got = train(*cluster.client, options, network, 24);
  check_values(got.variables, expected.variables);
  check_fell(got.losses);
}

TEST_CASE("asynchronous and hybrid replicas on several tasks learn, and every update is made") {
  for (const auto& [mode, backups, staleness] : {std::tuple(kAsyncMode, 0, -1), std::tuple(kAsyncMode, 0, 1),
                                                 std::tuple(kHybridMode, 0, -1), std::tuple(kHybridMode, 1, -1)})
    for (const ModelFn& model : {ModelFn(network), ModelFn(with_table)}) {
      INFO(mode.name << ", " << backups << " backups, staleness " << staleness);
      FakeCluster cluster(7, 3, 1);
      TrainerOptions options = settings(*cluster.client, mode);
      options.devices = worker_devices(3, 1);
      options.backups = backups;
      options.max_staleness = staleness;
      check_fell(train(*cluster.client, options, model, 45).losses);
    }
}

TEST_CASE("variables live on the tasks that are named for them, by size") {
  const auto engine = engine_of(2);
  FakeCluster cluster(8, 4, 1);
  const std::vector<std::string> all = worker_devices(4, 1);
  for (const Mode& mode : {kSyncMode, kAsyncMode, kHybridMode}) {
    INFO(mode.name);
    TrainerOptions options = settings(*engine, mode);
    options.container = options.name = mode.name;
    if (mode.mode == ReplicaMode::kSync) options.optimizer = adagrad(constant_rate(.1f));
    const int64_t updates = mode.mode == ReplicaMode::kSync ? kUpdates : 45;
    const Outcome expected = train(*engine, options, with_table, updates);
    options.devices = {all[0], all[1]};
    options.variable_devices = {all[2], "/job:worker/task:3"};
    const Outcome got = train(*cluster.client, options, with_table, updates);
    if (mode.mode == ReplicaMode::kSync) check_outcome(got, expected);
    else check_fell(got.losses);
  }
  TrainerOptions options = settings(*engine, kSyncMode);
  options.devices = {all[0], all[1]};
  options.variable_devices = {all[2], all[3]};
  options.container = options.name = "homes";
  const auto homes = homes_of(*trainer_of(*cluster.client, options, circle(512, 32), with_table));
  // Floats: words 400, hidden/kernel 96, first/kernel 40, logits/kernel 48; the table outweighs all others.
  for (const auto& [name, task] : homes) {
    INFO(name);
    CHECK(task == task_of(name.starts_with("words") ? all[2] : all[3]));
  }
  CHECK(homes.contains("words/table/adam_m"));
  CHECK(homes.contains("global_step"));
}

TEST_CASE("variable devices change nothing on one engine, and are refused where replicas keep their own") {
  const auto engine = engine_of(2);
  TrainerOptions options = settings(*engine, kSyncMode);
  const Outcome expected = train(*engine, options);
  options.variable_devices = {"/cpu:1"};
  options.container = options.name = "other";
  check_outcome(train(*engine, options), expected);
  for (const Mode& mode : {kRingMode, kZeroMode, kLocalMode}) {
    TrainerOptions refused = settings(*engine, mode);
    refused.variable_devices = {"/cpu:0", "/cpu:1"};
    const auto made = Trainer::create(*engine, network, circle(512, 32), refused);
    REQUIRE_FALSE(made.ok());
    CHECK_THAT(made.error().message, Catch::Contains("2 variable_devices"));
  }
}

TEST_CASE("snapshots, also of a run in progress, are those of one engine and go on anywhere") {
  const auto engine = engine_of(2);
  FakeCluster cluster(12, 3, 1);
  const std::vector<std::string> all = worker_devices(3, 1);
  for (const Mode& mode : {kSyncMode, kRingMode, kZeroMode, kLocalMode}) {
    if (kSlowness > 1 && mode.reduce == ReduceBy::kRing && !mode.sharded) continue;
    INFO(mode.name);
    /// Three updates, a snapshot, another trainer that goes on from it on the same devices.
    const auto run = [&](Engine& on, TrainerOptions options, bool spread) {
      std::vector<Snapshot> out;
      for (const int64_t updates : {3, 4}) {
        options.container = options.name = fmt::format("{}_{}", mode.name, updates);
        options.devices = spread ? std::vector<std::string>{all[0], all[1]} : on.devices();
        // The second has the tasks the other way round, and its variables on the third.
        if (spread && updates == 4) std::swap(options.devices[0], options.devices[1]);
        if (spread && updates == 4 && mode.mode == ReplicaMode::kSync && mode.reduce == ReduceBy::kChief)
          options.variable_devices = {all[2]};
        const auto trainer = trainer_of(on, options, circle(512, 32), with_table);
        REQUIRE(trainer->initialise().ok());
        if (!out.empty()) {
          const Status restored = trainer->restore(out.back());
          INFO((restored.ok() ? std::string() : restored.error().str()));
          REQUIRE(restored.ok());
        }
        const auto summary = trainer->run(updates);
        INFO((summary.ok() ? std::string() : summary.error().str()));
        REQUIRE(summary.ok());
        auto taken = trainer->snapshot();
        INFO((taken.ok() ? std::string() : taken.error().str()));
        REQUIRE(taken.ok());
        out.push_back(std::move(*taken));
      }
      CHECK(step_of(out[1]).value() == 7);
      return out;
    };
    const TrainerOptions options = settings(*engine, mode);
    const auto expected = run(*engine, options, false), got = run(*cluster.client, options, true);
    for (size_t i = 0; i < 2; ++i) CHECK(identical(got[i], expected[i]));
  }
  for (const Mode& mode : modes(1)) {
    INFO(mode.name);
    TrainerOptions options = settings(*cluster.client, mode);
    options.devices = all;
    options.container = options.name = mode.name;
    const auto trainer = trainer_of(*cluster.client, options);
    REQUIRE(trainer->initialise().ok());
    int64_t before = 0;
    const auto summary = trainer->run(12, [&](const StepReport& report) {
      const auto taken = trainer->snapshot();
      INFO((taken.ok() ? std::string() : taken.error().str()));
      REQUIRE(taken.ok());
      const int64_t step = step_of(*taken).value();
      CHECK(step >= (mode.mode == ReplicaMode::kAsync || mode.mode == ReplicaMode::kLocal ? before : report.step));
      before = step;
    });
    INFO((summary.ok() ? std::string() : summary.error().str()));
    REQUIRE(summary.ok());
  }
}

TEST_CASE("what a trainer had on its tasks goes with it, and its name is free for other tasks") {
  FakeCluster cluster(13, 3, 1);
  std::vector<std::string> devices = worker_devices(3, 1);
  for (const Mode& mode : modes(0))
    for (int i = 0; i < 2; ++i) {
      INFO(mode.name << ' ' << i);
      TrainerOptions options = settings(*cluster.client, mode);
      options.container = fmt::format("{}_{}", mode.name, i);
      options.devices = devices;
      const auto trainer = trainer_of(*cluster.client, options);
      REQUIRE(trainer->initialise().ok());
      const auto summary = trainer->run(3);
      INFO((summary.ok() ? std::string() : summary.error().str()));
      REQUIRE(summary.ok());
      std::rotate(devices.begin(), devices.begin() + 1, devices.end());
    }
}

TEST_CASE("a task that fails a step ends the run of every mode with its error") {
  // The class of a point is divided by: 7 / 0 in some batch, on whichever replica takes it.
  const ModelFn fails = [](const Scope& s, Variables& v, const std::vector<Output>& batch, bool training) {
    ModelOutputs out = network(s, v, batch, training);
    const Output least = s.op("Min", {batch[1], s.constant(0)});
    const Output ratio = s.named("ratio").op("FloorDiv", {s.constant(7), least});
    out.loss = s.after(std::vector<const Node*>{ratio.node}).op("Identity", {out.loss});
    return out;
  };
  FakeCluster cluster(9, 3, 1);
  for (const Mode& mode : modes(1)) {
    INFO(mode.name);
    TrainerOptions options = settings(*cluster.client, mode);
    options.devices = worker_devices(3, 1);
    options.container = options.name = mode.name;
    if (mode.mode == ReplicaMode::kLocal) options.local_steps = 5;
    const auto trainer = trainer_of(*cluster.client, options, circle(512, 32), fails);
    REQUIRE(trainer->initialise().ok());
    for (int i = 0; i < 2; ++i) {
      const auto summary = trainer->run(100);
      REQUIRE_FALSE(summary.ok());
      CHECK(summary.error().code == Code::kInvalidArgument);
      CHECK_THAT(summary.error().node, Catch::EndsWith("ratio"));
      CHECK_THAT(summary.error().device, Catch::StartsWith("/job:worker/replica:0/task:"));
    }
  }
}

TEST_CASE("a task that is lost ends the run of every mode") {
  for (const Mode& mode : modes(0)) {
    INFO(mode.name);
    FakeCluster cluster(10, 2, 1);
    TrainerOptions options = settings(*cluster.client, mode);
    options.devices = worker_devices(2, 1);
    const auto trainer = trainer_of(*cluster.client, options);
    REQUIRE(trainer->initialise().ok());
    auto ended = std::async(std::launch::async, [&] { return trainer->run(INT64_MAX); });
    while (trainer->step() < 3) std::this_thread::yield();
    cluster.worker(task_of(options.devices[1])).close(make_error(Code::kUnavailable, "the task was lost"));
    const auto summary = ended.get();
    REQUIRE_FALSE(summary.ok());
    CHECK(summary.error().code == Code::kUnavailable);
    CHECK_THAT(summary.error().message, Catch::Contains("was lost"));
  }
}

TEST_CASE("stop, a second run and the end of data are as on one engine") {
  FakeCluster cluster(11, 2, 1);
  for (const Mode& mode : modes(1)) {
    INFO(mode.name);
    TrainerOptions options = settings(*cluster.client, mode);
    options.devices = worker_devices(2, 1);
    options.container = options.name = mode.name;
    const auto trainer = trainer_of(*cluster.client, options, circle(320, 32, 1));
    REQUIRE(trainer->initialise().ok());
    const auto stopped = trainer->run(100, [&](const StepReport&) { trainer->stop(); });
    REQUIRE(stopped.ok());
    CHECK(stopped->stopped);
    const auto rest = trainer->run(100);
    REQUIRE(rest.ok());
    CHECK(rest->end_of_data);
    const bool shared = mode.mode == ReplicaMode::kAsync;
    CHECK(trainer->step() == (shared ? 10 : 5));
  }
  // One that waits for data is destroyed.
  TrainerOptions options = settings(*cluster.client, kSyncMode);
  options.devices = worker_devices(2, 1);
  options.name = "idle";
  trainer_of(*cluster.client, options);
}

}  // namespace
}  // namespace troupe::nn
