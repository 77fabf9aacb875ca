// SPDX-License-Identifier: Apache-2.0
// Trainers that lose tasks: over sockets, whose tasks the tests end and start again at steps that they choose, or at
// random moments.
#include <atomic>
#include <future>
#include <numeric>
#include <semaphore>
#include <thread>

#include "tests/op_library.h"
#include "tests/repeats.h"
#include "tests/train/loss_fixture.h"
#include "troupe/dataset_queue.h"

namespace troupe::nn {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

/// What one engine with as many devices makes of it.
std::map<std::string, Tensor> alone(const Mode& mode, int devices, int64_t updates) {
  const auto engine = Engine::create(
      {.cpu_threads = std::vector<int>(static_cast<size_t>(devices), 1), .op_library = testing::op_library()});
  REQUIRE(engine.ok());
  const auto trainer = trainer_of(**engine, settings(**engine, mode));
  REQUIRE(trainer->initialise().ok());
  REQUIRE(trainer->run(updates).ok());
  return values_of(**engine, trainer->variables());
}

}  // namespace

TEST_CASE("a synchronous trainer that loses a task ends with the bits of one that does not") {
  for (const Mode& mode : {kSyncMode, kRingMode, kZeroMode}) {
    if (kSlowness > 1 && mode.reduce == ReduceBy::kRing && !mode.sharded) continue;
    const auto expected = alone(mode, 3, 12);
    for (const int task : {0, 2})
      for (const bool after_snapshot : {false, true}) {
        if (kSlowness > 1 && after_snapshot == (task == 0)) continue;
        INFO(mode.name << ", task " << task << (after_snapshot ? " after a snapshot" : ""));
        LossFixture f(3, mode);
        int64_t snapshot_at = 0;
        const auto summary = f.run(12, [&](const StepReport& report) {
          if (report.step == 4 && after_snapshot && snapshot_at == 0) snapshot_at = step_of(f.snapshot()).value();
          if (report.step == 8 && f.told.empty() && f.cluster.workers[static_cast<size_t>(task)]) f.kill(task);
        });
        CHECK(summary.updates == 12);
        CHECK(summary.losses == 1);
        CHECK(f.trainer->step() == 12);
        REQUIRE(f.told.size() == 2);
        CHECK_THAT(f.told[0].reason, Catch::Contains(fmt::format("task:{}", task)));
        CHECK_FALSE(f.told[0].back);
        CHECK(f.told[1].back);
        CHECK(f.told[1].step >= snapshot_at);
        // A step whose end was on its way as the task was lost has updated too.
        const int64_t ended_late = f.told[1].updates - (f.told[0].step - f.told[1].step);
        CHECK((ended_late == 0 || ended_late == 1));
        CHECK(f.told[1].batches == 0);
        check_values(values_of(*f.client, f.trainer->variables()), expected);
      }
  }
}

TEST_CASE("tasks that are killed at random moments leave the bits of one engine") {
  constexpr int64_t kRun = kSlowness > 1 ? 15 : 200;
  const auto expected = alone(kSyncMode, 2, 6 * kRun);
  LossFixture f(2, kSyncMode, [](TrainerOptions& o) { o.recovery.snapshot_interval = std::chrono::milliseconds(50); });
  f.restarts = false;
  std::atomic<bool> failed = false;
  std::jthread killer([&](const std::stop_token& stop) {
    std::mt19937 random(5);
    while (!stop.stop_requested()) {
      const int task = static_cast<int>(random() % 2);
      f.kill(task);
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 50));
      if (!f.cluster.try_start(task).ok()) return void(failed = true);
      std::this_thread::sleep_for(
          std::chrono::milliseconds(static_cast<int>(random() % 300) * static_cast<int>(kSlowness)));
    }
  });
  // Between runs, in runs, in snapshots and in tests.
  for (int i = 0; i < 6; ++i) {
    CHECK(f.run(kRun, [&](const StepReport& r) {
             if (r.step % (kRun / 4) == 0) f.snapshot();
           }).updates == kRun);
    CHECK(f.trainer->step() == kRun * (i + 1));
    const auto tested = f.trainer->evaluate(circle(96, 32, 1, 5));
    INFO((tested.ok() ? std::string() : tested.error().str()));
    CHECK(tested.ok());
    CHECK(step_of(f.snapshot()).value() == kRun * (i + 1));
  }
  killer.request_stop();
  killer.join();
  CHECK_FALSE(failed);
  const Snapshot last = f.snapshot();
  for (const auto& [name, value] : expected) {
    INFO(name);
    CHECK(last.variables.at(name).identical(value));
  }
}

TEST_CASE("a run whose task is lost after each second update gets to its end") {
  constexpr int64_t kUpdates = 6;
  for (const Mode& mode : kAllModes) {
    if (mode.mode == ReplicaMode::kLocal) continue;
    if (kSlowness > 1 && mode.reduce == ReduceBy::kRing && !mode.sharded) continue;
    INFO(mode.name);
    LossFixture f(2, mode);
    const bool hybrid = mode.mode == ReplicaMode::kHybrid;
    int made = 0, losses = 0;  // the first: updates since the last loss
    f.on_task = [&](const TaskReport& report) {
      if (report.back) made = 0;
    };
    const auto summary = f.run(kUpdates, [&](const StepReport& report) {
      if ((!hybrid || report.replica == 0) && ++made == 2 && losses < 20) f.kill(0), ++losses;
    });
    CHECK(summary.updates >= kUpdates);
    CHECK(losses <= kUpdates);
    if (mode.mode == ReplicaMode::kSync)
      check_values(values_of(*f.client, f.trainer->variables()), alone(mode, 2, kUpdates));
  }
}

TEST_CASE("a loss between two runs costs nothing that is seen") {
  const auto expected = alone(kSyncMode, 2, 9);
  LossFixture f(2, kSyncMode);
  f.run(3);
  f.kill(1);
  f.start_missing();
  CHECK(f.trainer->step() == 3);
  CHECK(step_of(f.snapshot()).value() == 3);
  f.kill(0);
  f.start_missing();
  CHECK(f.trainer->evaluate(circle(96, 32, 1, 5)).ok());
  f.kill(1);
  f.start_missing();
  CHECK(f.run(6).updates == 6);
  check_values(values_of(*f.client, f.trainer->variables()), expected);
}

TEST_CASE("a call gets over each loss, however long ago that or the last one was") {
  constexpr auto kWait = std::chrono::milliseconds(2000);
  LossFixture f(2, kSyncMode, [&](TrainerOptions& o) { o.recovery.wait = kWait; });
  const auto keep_busy = [&](std::chrono::nanoseconds time, const std::function<void()>& what) {
    const auto until = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < until) what();
  };
  const auto evaluate = [&] {
    const auto tested = f.trainer->evaluate(circle(96, 32, 1, 5));
    INFO((tested.ok() ? std::string() : tested.error().str()));
    REQUIRE(tested.ok());
  };
  f.run(3);
  for (int i = 0; i < 3; ++i) {
    f.kill(1);
    f.start_missing();
    keep_busy(kWait * 2 / 3, evaluate);
  }
  // What was lost and came back before anybody asked.
  for (const bool runs : {false, true}) {
    f.kill(1);
    f.start_missing();
    keep_busy(kWait * 5 / 4, [&] { values_of(*f.client, Variables("other")); });
    if (runs) f.run(3);
    else evaluate();
  }
  CHECK(f.trainer->step() == 6);
}

TEST_CASE("a failure at an earlier step than that of the last loss is another one") {
  constexpr auto kWait = std::chrono::milliseconds(2000);
  struct Failing {
    std::mutex mutex;
    std::optional<std::chrono::steady_clock::time_point> until;  // from the loss on
    int left = -1;                                               // elements before the failure; -1: none is due
  };
  const auto failing = std::make_shared<Failing>();
  const Dataset data = circle(512, 32).map([failing](Element batch) {
    const std::lock_guard lock(failing->mutex);
    if (failing->left < 0 || failing->left-- > 0) return Result<Element>(std::move(batch));
    std::this_thread::sleep_until(*failing->until);
    return Result<Element>(make_error(Code::kUnavailable, "the store of files is away"));
  });
  LossFixture f(
      2, kSyncMode, [&](TrainerOptions& o) { o.recovery.wait = kWait; }, data);
  f.on_task = [&](const TaskReport& report) {
    const std::lock_guard lock(failing->mutex);
    if (!report.back && !failing->until) failing->until = std::chrono::steady_clock::now() + kWait * 5 / 4;
    if (report.back && f.told.size() == 2) failing->left = 8;  // updates take two, and some wait in queues
  };
  const auto summary = f.run(30, [&](const StepReport& report) {
    if (report.step == 25 && f.told.empty() && f.cluster.workers[1]) f.kill(1);
  });
  CHECK(summary.updates == 30);
  CHECK(summary.losses == 2);
  REQUIRE(f.told.size() == 4);
  CHECK_THAT(f.told[0].reason, Catch::Contains("task:1"));
  CHECK_THAT(f.told[2].reason, Catch::Contains("the store of files is away"));
  CHECK(f.told[2].step < f.told[0].step);
  check_values(values_of(*f.client, f.trainer->variables()), alone(kSyncMode, 2, 30));
}

TEST_CASE("a task that is lost while a trainer tests is told of once") {
  LossFixture f(2, kSyncMode);
  f.run(3);
  for (int i = 0; i < 10; ++i) {
    const auto read = std::make_shared<std::atomic<int>>(0);
    const auto started = std::make_shared<std::atomic<bool>>(false);
    const auto tested = f.trainer->evaluate(circle(512, 8, 1, 5).map([&f, read, started](Element batch) {
      if (read->fetch_add(1) != 20) return batch;
      f.kill(1);
      *started = f.cluster.try_start(1).ok();
      return batch;
    }));
    REQUIRE(*started);
    INFO((tested.ok() ? std::string() : tested.error().str()));
    REQUIRE(tested.ok());
    f.run(1);
    bool away = false;
    for (const TaskReport& report : f.told) {
      CHECK(report.back == away);
      away = !report.back;
    }
  }
}

TEST_CASE("local replicas that lose a task make all their updates") {
  LossFixture f(2, kLocalMode, [](TrainerOptions& o) { o.local_steps = 3; });
  const auto summary = f.run(24, [&](const StepReport& report) {
    if (report.step == 10 && f.told.empty() && f.cluster.workers[1]) f.kill(1);
  });
  CHECK(summary.updates == 24);
  CHECK(f.told.size() == 2);
  CHECK(values_of(*f.client, f.trainer->variables()).at("global_step").data<int64_t>()[0] == 24);
  CHECK(f.trainer->evaluate(circle(512, 32, 1, 5))->accuracy > .6);
}

TEST_CASE("replicas on other tasks go on while one is lost, and it joins them again") {
  for (const Mode& mode : {kAsyncMode, kHybridMode}) {
    INFO(mode.name);
    LossFixture f(3, mode, [](TrainerOptions& o) {
      o.devices = {o.devices[1], o.devices[2], o.devices[2]};
      o.variable_devices = {"/job:worker/task:0"};
      if (o.mode == ReplicaMode::kHybrid) o.backups = 1;
    });
    f.restarts = false;
    int64_t killed = 0, others = 0, again = 0;
    f.on_task = [&](const TaskReport& report) { CHECK(report.replica == 0); };
    const auto summary = f.run(1'000'000, [&](const StepReport& report) {
      if (report.step >= 10 && killed == 0) killed = report.step, f.kill(1);
      const bool lost = !f.told.empty(), back = f.told.size() > 1;
      if (lost && !back && report.replica > 0 && ++others == 30) {
        CHECK(f.snapshot().variables.contains("global_step"));  // without the task that is not there
        f.start_missing();
      }
      if (back && report.replica == 0 && ++again == 5) f.trainer->stop();
    });
    REQUIRE(f.told.size() == 2);
    CHECK_THAT(f.told[0].reason, Catch::Contains("task:1"));
    CHECK(f.told[1].back);
    CHECK(f.told[1].batches == 1);
    CHECK(summary.batches_lost == 1);
    CHECK(f.told[1].updates == 0);
    CHECK(f.told[1].step > f.told[0].step);
    CHECK(again >= 5);
  }
}

TEST_CASE("a run tells what batches it lost, also where the replica is not back before its end") {
  LossFixture f(3, kAsyncMode, [](TrainerOptions& o) {
    o.devices = {o.devices[1], o.devices[2]};
    o.variable_devices = {"/job:worker/task:0"};
  });
  f.restarts = false;
  const auto cut_short = f.run(1'000'000, [&](const StepReport& report) {
    if (report.step >= 10 && f.cluster.workers[1]) f.kill(1);
    if (!f.told.empty()) f.trainer->stop();
  });
  REQUIRE(f.told.size() == 1);
  CHECK(cut_short.batches_lost == 1);
  CHECK(f.snapshot().variables.contains("global_step"));
  // With the replica aside, then back, and then a loss of all: the batch is neither lost again nor forgotten.
  f.start_missing();
  const auto back = f.run(1'000'000, [&](const StepReport& report) {
    if (f.told.size() > 1 && report.replica == 0) f.trainer->stop();
  });
  REQUIRE(f.told.size() == 2);
  CHECK(f.told[1].back);
  CHECK(f.told[1].batches == 1);
  CHECK(back.batches_lost == 0);
  f.snapshot();
  f.kill(0);
  f.start_missing();
  CHECK(f.run(5).batches_lost == 0);  // the batch is not lost again
  REQUIRE(f.told.size() == 4);
  CHECK(f.told[3].batches == 0);
}

TEST_CASE("of finite data each batch is trained on or lost, however often replicas lose their tasks") {
  constexpr int64_t kBatches = 16 * 60;
  for (const Mode& mode : {kAsyncMode, kHybridMode}) {
    INFO(mode.name);
    LossFixture f(
        4, mode,
        [](TrainerOptions& o) {
          o.devices.erase(o.devices.begin());
          o.variable_devices = {"/job:worker/task:0"};
          o.recovery.snapshot_interval = minutes(10);
          if (o.mode == ReplicaMode::kHybrid) o.backups = 2;
        },
        circle(512, 32, kBatches / 16));
    int64_t trained = 0;
    bool kills = true;
    f.on_task = [&](const TaskReport& report) {
      if (!report.back || report.replica >= 0) return;
      // An update in doubt at the end of the data: all begins again, from the first batch.
      CHECK(report.step == 0);
      trained = 0;
      kills = false;
    };
    const auto summary = f.run(1'000'000, [&](const StepReport&) {
      if (++trained % 40 != 0 || !kills) return;
      for (const int task : {1, 2, 3})
        if (f.cluster.workers[static_cast<size_t>(task)]) f.kill(task);
      f.start_missing();
    });
    CHECK(summary.end_of_data);
    CHECK(trained + summary.batches_lost == kBatches);
  }
}

TEST_CASE("a run that lost a replica does not wait for a silent dataset, and takes each batch that is there") {
  for (const Mode& mode : {kAsyncMode, kHybridMode}) {
    INFO(mode.name);
    constexpr int kFirst = 64, kMore = 9;
    const Dataset data = circle(kFirst * 32, 32);
    auto queue = *DatasetQueue::create(data.dtypes(), data.shapes(), kFirst);
    const auto push = [&](int n) {
      const auto it = *data.iterate();
      for (int i = 0; i < n; ++i) REQUIRE(queue.push(**it->next()).ok());
    };
    push(kFirst);
    LossFixture f(
        3, mode,
        [](TrainerOptions& o) {
          o.devices = {o.devices[1], o.devices[2], o.devices[2]};
          o.variable_devices = {"/job:worker/task:0"};
          o.queue_capacity = 2;
          if (o.mode == ReplicaMode::kHybrid) o.backups = 2;
        },
        Dataset::from_queue(queue));
    f.restarts = false;
    bool killed = false;
    std::atomic<int> taken = 0;
    const auto train = [&](const StepReport& report) {
      ++taken;
      if (report.replica == 0 && report.step >= 4 && !std::exchange(killed, true)) f.kill(1);
    };
    auto run = std::async(std::launch::async, [&] { return f.run(1'000'000, train); });
    // The step that failed has taken a batch or not.
    while (taken < kFirst - 1) std::this_thread::yield();
    f.trainer->stop();
    REQUIRE(run.wait_for(minutes(1)) == std::future_status::ready);
    CHECK(run.get().stopped);
    CHECK(killed);
    push(kMore);
    queue.close();
    const auto rest = f.run(1'000'000, train);
    CHECK(rest.end_of_data);
    CHECK(taken >= kFirst + kMore - 1);
    CHECK(taken <= kFirst + kMore);
  }
}

TEST_CASE("a hybrid run whose replica is killed again and again, amid snapshots, makes all its updates") {
  constexpr int64_t kRun = kSlowness > 1 ? 9 : 45;
  LossFixture f(3, kHybridMode);
  f.restarts = false;
  std::atomic<bool> failed = false;
  // Replica 2, which has no variables, is killed when it has pushed its gradients, or not: nobody knows.
  std::jthread killer([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const int64_t step = f.trainer->step();
      f.kill(2);
      if (!f.cluster.try_start(2).ok()) return void(failed = true);
      while (f.trainer->step() < step + 3 && !stop.stop_requested()) std::this_thread::yield();
    }
  });
  std::jthread watcher([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) failed = failed || !f.trainer->snapshot().ok();
  });
  CHECK(f.run(kRun).updates == kRun);
  watcher.request_stop(), killer.request_stop();
  watcher.join(), killer.join();
  CHECK_FALSE(failed);
}

TEST_CASE("a lost parameter server comes back from the snapshot, and what is lost is told") {
  for (const Mode& mode : {kAsyncMode, kHybridMode}) {
    INFO(mode.name);
    LossFixture f(3, mode, [](TrainerOptions& o) {
      o.devices = {o.devices[1], o.devices[2]};
      o.variable_devices = {"/job:worker/task:0"};
    });
    int64_t kept = 0;
    bool killed = false;
    const auto summary = f.run(60, [&](const StepReport& report) {
      if (report.step >= 10 && kept == 0) kept = step_of(f.snapshot()).value();
      if (report.step >= 20 && !std::exchange(killed, true)) f.kill(0);
    });
    CHECK(summary.updates == 60);
    CHECK(summary.batches_lost == 0);  // read again
    REQUIRE(f.told.size() == 2);
    CHECK(f.told[0].replica == -1);
    CHECK_THAT(f.told[0].reason, Catch::Contains("task:0"));
    CHECK(f.told[1].step >= kept);
    // What was told of the loss does not have an update whose answer was on its way, of which each replica has one.
    const int64_t on_their_way = f.told[1].updates - (f.told[0].step - f.told[1].step);
    CHECK(on_their_way >= 0);
    CHECK(on_their_way <= 2);
    CHECK(f.trainer->step() == 60);
    const int64_t counted = values_of(*f.client, f.trainer->variables()).at("global_step").data<int64_t>()[0];
    CHECK(counted == 60);
  }
}

TEST_CASE("batches whose gradients wait when a hybrid run's snapshot is taken are read again, not lost") {
  constexpr int kBatches = 4096;
  std::vector<int32_t> numbers(kBatches);
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto data = Dataset::from_tensors({Tensor::of<int32_t>(numbers)});
  REQUIRE(data.ok());
  SocketCluster cluster(3);
  const auto client = cluster.client();
  TrainerOptions options = settings(*client, kHybridMode);
  options.devices = {"/job:worker/task:1", "/job:worker/task:2"};
  options.variable_devices = {"/job:worker/task:0"};
  options.optimizer = sgd(constant_rate(1));
  options.recovery.snapshot_interval = std::chrono::milliseconds(1);
  options.recovery.on_task = [&](const TaskReport& report) {
    if (!report.back && !cluster.workers[0]) cluster.start(0);
  };
  // Row i is minus the share of the update that had batch i.
  const auto count = [](const Scope& s, Variables& v, const std::vector<Output>& batch, bool) {
    return ModelOutputs{sum_all(s, embedding(s, v, batch[0], kBatches, 1, "seen", {.table = zeros()}))};
  };
  const auto trainer = trainer_of(*client, options, data->batch(1), count);
  REQUIRE(trainer->initialise().ok());
  int64_t next = 20;
  const auto summary = trainer->run(300, [&](const StepReport& report) {
    if (report.step < next || next >= 280 || !cluster.workers[0]) return;
    next = report.step + 40;
    cluster.workers[0].reset();
  });
  INFO((summary.ok() ? std::string() : summary.error().str()));
  REQUIRE(summary.ok());
  const Tensor seen = values_of(*client, trainer->variables()).at("seen/table");
  for (int i = 0; i < 600; ++i) {
    INFO("batch " << i);
    CHECK(seen.data<float>()[i] == -0.5f);
  }
}

TEST_CASE("updates of steps that failed with their task are not told as fewer than none") {
  SocketCluster cluster(3);
  const auto client = cluster.client();
  TrainerOptions options = settings(*client, kAsyncMode);
  options.devices = {"/job:worker/task:1", "/job:worker/task:2"};
  options.variable_devices = {"/job:worker/task:0"};
  std::vector<TaskReport> told;
  options.recovery.snapshot_interval = seconds(30);
  options.recovery.on_task = [&](const TaskReport& report) { told.push_back(report); };
  // A step makes its update, and ends when its replica's queue has an accuracy.
  const auto accuracies = [](const Scope& s, const std::string& task) {
    return s.op("FIFOQueueV2", {},
                {{"component_types", std::vector{DType::kFloat32}},
                 {"shapes", std::vector{PartialShape::scalar()}},
                 {"shared_name", "accuracies of " + task}});
  };
  const auto model = [&](const Scope& s, Variables& v, const std::vector<Output>& batch, bool training) {
    ModelOutputs out = network(s, v, batch, training);
    const Scope server = s.device("/job:worker/task:0");
    const Output queue = accuracies(server, s.device_name());
    out.accuracy =
        s.op("Neg", {server.op("QueueDequeueV2", {queue}, {{"component_types", std::vector{DType::kFloat32}}})});
    return out;
  };
  const auto trainer = trainer_of(*client, options, circle(512, 32), model);
  REQUIRE(trainer->initialise().ok());
  const auto give = [&](int replica, int count) {
    Graph graph(client->ops());
    const Scope server = Scope(graph).device("/job:worker/task:0");
    const std::string task = Scope(graph).device(fmt::format("/job:worker/task:{}", replica)).device_name();
    const Node* const put = server.node(
        "QueueEnqueueManyV2", {accuracies(server, task), server.constant(*Tensor::zeros(DType::kFloat32, {count}))});
    Session session(*client, graph);
    while (!session.run(put).ok()) std::this_thread::yield();  // until the task is back
  };
  const auto updates = [&] { return values_of(*client, trainer->variables()).at("global_step").data<int64_t>()[0]; };
  REQUIRE(trainer->snapshot().ok());  // so that the run takes none, which would wait for the steps
  auto run = std::async(std::launch::async, [&] { return trainer->run(20); });
  give(2, 19);
  while (trainer->step() < 19 || updates() < 20) std::this_thread::yield();
  cluster.workers[1].reset();  // whose step has made its update
  give(2, 1);
  const auto first = run.get();
  INFO((first.ok() ? "" : first.error().str()));
  REQUIRE(first.ok());
  CHECK(first->updates == 20);
  CHECK(trainer->step() == 20);
  const auto taken = trainer->snapshot();
  REQUIRE(taken.ok());
  CHECK(step_of(*taken).value() == 21);
  cluster.workers[0].reset();
  cluster.start(0), cluster.start(1);
  give(1, 9), give(2, 9);
  const auto second = trainer->run(2);
  INFO((second.ok() ? "" : second.error().str()));
  REQUIRE(second.ok());
  CHECK(second->updates == 2);
  CHECK(trainer->step() == 23);
  CHECK(updates() == 23);
  REQUIRE_FALSE(told.empty());
  CHECK(told.back().back);
  CHECK(std::ranges::all_of(told, [](const TaskReport& t) { return t.updates >= 0; }));
}

TEST_CASE("a task that does not come back is the run's error") {
  for (const bool at_once : {true, false}) {
    LossFixture f(2, kSyncMode,
                  [&](TrainerOptions& o) { o.recovery.wait = std::chrono::milliseconds(at_once ? 0 : 50); });
    f.restarts = false;
    const auto summary = f.trainer->run(1'000'000, [&](const StepReport& report) {
      if (report.step == 3) f.kill(1);
    });
    REQUIRE_FALSE(summary.ok());
    CHECK(summary.error().code == Code::kUnavailable);
    CHECK_THAT(summary.error().str(), Catch::Contains("task:1"));
    CHECK(f.told.size() == (at_once ? 0 : 1));
    CHECK(f.trainer->run(1).error().str() == summary.error().str());
    // What was kept is there to be saved, whether the task is still away or back with nothing.
    for (const bool back : {false, true}) {
      if (back) f.start_missing();
      const auto taken = f.trainer->snapshot();
      if (at_once) continue;
      INFO((taken.ok() ? "" : taken.error().str()));
      REQUIRE(taken.ok());
      CHECK(step_of(*taken).value() == 0);
      CHECK(taken->variables.size() == f.trainer->variables().all().size());
    }
  }
  // Nor does one, without variables, whose replica no update can do without.
  for (const Mode& mode : {kAsyncMode, kHybridMode}) {
    INFO(mode.name);
    const bool hybrid = mode.mode == ReplicaMode::kHybrid;
    LossFixture f(2, mode, [&](TrainerOptions& o) {
      o.recovery.wait = std::chrono::milliseconds(50);
      if (!hybrid) o.devices = {o.devices[1]};
      o.variable_devices = {"/job:worker/task:0"};
    });
    f.restarts = false;
    bool killed = false;
    const auto summary = f.trainer->run(1'000'000, [&](const StepReport& report) {
      if (report.step >= 3 && !std::exchange(killed, true)) f.kill(1);
    });
    REQUIRE_FALSE(summary.ok());
    CHECK(summary.error().code == Code::kUnavailable);
    CHECK_THAT(summary.error().str(), Catch::Contains(hybrid ? "1 of 2 replicas is left, and an update needs 2"
                                                             : "0 of 1 replicas are left, and an update needs 1") &&
                                          Catch::Contains("task:1"));
  }
}

TEST_CASE("a run that is stopped while it waits for a task ends, and gives what it would go on from") {
  LossFixture f(2, kSyncMode);
  f.restarts = false;
  int64_t kept = 0;
  f.on_task = [&](const TaskReport&) {
    CHECK(step_of(f.snapshot()).value() == kept);  // from the run's own thread, too
    f.trainer->stop();
  };
  const auto summary = f.run(1'000'000, [&](const StepReport& report) {
    if (report.step == 3) kept = step_of(f.snapshot()).value();
    if (report.step == 6 && kept > 0) f.kill(1);
  });
  CHECK(summary.stopped);
  CHECK(summary.updates == kept);
  CHECK(f.trainer->step() == kept);
  CHECK(step_of(f.snapshot()).value() == kept);
  f.trainer->stop();
  CHECK(f.trainer->evaluate(circle(96, 32, 1, 5)).error().code == Code::kCancelled);
  f.start_missing();
  f.on_task = {};
  CHECK(f.run(20 - kept).updates == 20 - kept);
  check_values(values_of(*f.client, f.trainer->variables()), alone(kSyncMode, 2, 20));
}

TEST_CASE("a snapshot between two runs that is in haste does not wait for a lost task, and loses nothing") {
  LossFixture f(2, kSyncMode);
  f.restarts = false;
  int64_t kept = 0;
  f.run(6, [&](const StepReport& report) {
    if (report.step == 3) kept = step_of(f.snapshot()).value();
  });
  std::stop_source hurry;
  f.kill(1);
  auto waits = std::async(std::launch::async, [&] { return f.trainer->snapshot(hurry.get_token()); });
  hurry.request_stop();
  for (int i = 0; i < 2; ++i) {
    const auto taken = i == 0 ? waits.get() : f.trainer->snapshot(hurry.get_token());
    INFO((taken.ok() ? "" : taken.error().str()));
    REQUIRE(taken.ok());
    CHECK(step_of(*taken).value() == kept);
    CHECK(f.trainer->step() == 6);
  }
  f.start_missing();
  CHECK(step_of(f.snapshot()).value() == 6);
  CHECK(step_of(f.trainer->snapshot(hurry.get_token()).value()).value() == 6);
  CHECK(f.run(6).updates == 6);
  check_values(values_of(*f.client, f.trainer->variables()), alone(kSyncMode, 2, 12));
}

TEST_CASE("a dataset that gives its elements once goes on where it is, and what is lost is told") {
  const auto read = std::make_shared<std::atomic<int64_t>>(0);
  const auto source = Dataset::from_function(
      [read]() -> Result<std::optional<Element>> {
        const int64_t i = read->fetch_add(1);
        if (i >= 400) return std::optional<Element>();
        const float x = static_cast<float>(i % 7) - 3;
        return std::optional<Element>({Tensor::of<float>({x, -x, x, x}, {2, 2}), Tensor::of<int32_t>({1, 0})});
      },
      {DType::kFloat32, DType::kInt32}, {PartialShape(Shape{2, 2}), PartialShape(Shape{2})});
  REQUIRE(source.ok());
  CHECK_FALSE(source->repeatable());
  CHECK_FALSE(source->map([](Element e) { return e; }).batch(2).take(3).repeatable());
  LossFixture f(2, kSyncMode, {}, *source);
  const auto summary = f.run(1'000'000, [&](const StepReport& report) {
    if (report.step == 20 && f.told.empty() && f.cluster.workers[0]) f.kill(0);
  });
  CHECK(summary.end_of_data);
  REQUIRE(f.told.size() == 2);
  CHECK(f.told[1].batches > 0);
  CHECK(summary.batches_lost == f.told[1].batches);
  CHECK(summary.updates * 2 <= 400);
  CHECK(summary.updates * 2 + f.told[1].batches <= 404);
}

TEST_CASE("batches that were lost between two runs, and found out by a test or a snapshot, count for the next run") {
  for (const bool tests : {true, false}) {
    INFO((tests ? "a test" : "a snapshot"));
    const auto source = Dataset::from_function(
        []() -> Result<std::optional<Element>> {
          return std::optional<Element>({Tensor::of<float>({1, 2, 3, 4}, {2, 2}), Tensor::of<int32_t>({1, 0})});
        },
        {DType::kFloat32, DType::kInt32}, {PartialShape(Shape{2, 2}), PartialShape(Shape{2})});
    REQUIRE(source.ok());
    LossFixture f(2, kSyncMode, {}, *source);
    CHECK(f.run(5).batches_lost == 0);
    f.kill(1);
    f.start_missing();
    if (tests) CHECK(f.trainer->evaluate(circle(96, 32, 1, 5)).ok());
    else f.snapshot();
    const auto summary = f.run(5);
    CHECK(summary.losses == 1);
    REQUIRE(f.told.size() == 2);
    CHECK(f.told[1].batches >= 10);
    CHECK(summary.batches_lost == f.told[1].batches);
    CHECK(f.run(5).batches_lost == 0);
  }
}

TEST_CASE("what is told of a task may throw, and a trainer without its tasks be destroyed") {
  LossFixture f(2, kSyncMode);
  f.restarts = false;
  f.on_task = [](const TaskReport&) { throw std::runtime_error("not now"); };
  const auto summary = f.trainer->run(1'000'000, [&](const StepReport& report) {
    if (report.step == 3) f.kill(1);
  });
  REQUIRE_FALSE(summary.ok());
  CHECK_THAT(summary.error().str(), Catch::Contains("not now"));
  f.trainer.reset();
}

TEST_CASE("what a client left on tasks when it died does not reach the next one") {
  SocketCluster cluster(2);
  TrainerOptions options;
  options.devices = worker_devices(2, 1);
  options.optimizer = adam(constant_rate(0.02f));
  {
    // Queues of the trainer's, with other batches than its own, and closed.
    const auto client = cluster.client();
    Graph graph(client->ops());
    std::vector<const Node*> targets;
    for (int i = 0; i < 2; ++i) {
      const Scope there = Scope(graph).device(options.devices[static_cast<size_t>(i)]);
      const std::string name = fmt::format("batches_{}", i);
      const Output queue = there.op("FIFOQueueV2", {},
                                    {{"component_types", std::vector{DType::kFloat32, DType::kInt32}},
                                     {"shapes", std::vector{PartialShape(Shape{32, 2}), PartialShape(Shape{32})}},
                                     {"capacity", int64_t{4}},
                                     {"container", std::string("trainer/train")},
                                     {"shared_name", name}});
      const Node* const full =
          there.node("QueueEnqueueV2", {queue, there.constant(*Tensor::zeros(DType::kFloat32, {32, 2})),
                                        there.constant(*Tensor::zeros(DType::kInt32, {32}))});
      targets.push_back(there.after({full}).node("QueueCloseV2", {queue}));
    }
    Session session(*client, graph);
    REQUIRE(session.run(targets).ok());
  }
  const auto client = cluster.client();
  const auto trainer = trainer_of(*client, options);
  REQUIRE(trainer->initialise().ok());
  REQUIRE(trainer->run(9).ok());
  check_values(values_of(*client, trainer->variables()), alone(kSyncMode, 2, 9));
}

}  // namespace troupe::nn
