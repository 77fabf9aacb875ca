// SPDX-License-Identifier: Apache-2.0
// What becomes of steps over sockets when a task or a connection goes and comes back.
#include <future>
#include <thread>

#include "actors/engine_impl.h"
#include "tests/actors/relay.h"
#include "tests/actors/socket_cluster.h"
#include "tests/actors/there_and_back.h"

using namespace troupe;

TEST_CASE("a task whose connections are dead, of which nobody is told, is dialled anew before it counts as lost") {
  SocketCluster tasks(2, false);
  tasks.options.cluster.silence = std::chrono::seconds(6);
  tasks.start(0), tasks.start(1);
  const std::string through = tasks.directory.file("relay");
  Relay relay(through, tasks.path(1));
  const auto engine = Engine::create(tasks.options_by(1, through));
  REQUIRE(engine.ok());
  ThereAndBack t(**engine);
  REQUIRE(t.run(ramp(10)).ok());
  for (int round = 1; round <= 2; ++round) {
    relay.freeze();
    while (relay.freezes() < round) std::this_thread::yield();
    const auto result = t.run(ramp(20));
    INFO((result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    CHECK((*result)[0].identical(ramp(20)));
  }
  for (const TaskStatus& task : cluster_status(**engine)) CHECK(task.lives == 1);
}

TEST_CASE("a task that answers and takes nothing is given up, and taken back when it takes something") {
  SocketCluster tasks(2, false);
  tasks.options.cluster.silence = std::chrono::seconds(4);
  tasks.start(0), tasks.start(1);
  // The client reaches task 1 through a relay.
  const std::string through = tasks.directory.file("relay");
  Relay relay(through, tasks.path(1));
  const auto engine = Engine::create(tasks.options_by(1, through));
  REQUIRE(engine.ok());
  ThereAndBack t(**engine);
  REQUIRE(t.run(ramp(10)).ok());
  relay.stall_after(2 << 20);  // the lane of small frames does not come to that
  const auto result = t.run(ramp(8 << 20));
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().code == Code::kUnavailable);
  CHECK_THAT(result.error().message, Catch::Contains("/job:worker/replica:0/task:1: it has taken nothing for") &&
                                         Catch::Contains("ms of 32 MiB that are on their way to it"));
  relay.stall_after(UINT64_MAX);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const Tensor value = ramp(1 << 20);
  auto again = t.run(value);
  for (; !again.ok() && std::chrono::steady_clock::now() < deadline; again = t.run(value)) std::this_thread::yield();
  REQUIRE(again.ok());
  CHECK((*again)[0].identical(value));
}

/// Two tasks, of which the first reaches the second by a relay alone.
struct RelayedTasks {
  SocketCluster tasks{2, false};
  const std::string through = tasks.directory.file("relay");
  std::unique_ptr<Relay> relay = std::make_unique<Relay>(through, tasks.path(1));
  RelayedTasks() {
    tasks.of_task = [this](ClusterOptions& options, int task) {
      if (task == 0) options.spec = tasks.options_by(1, through).cluster.spec;
    };
    tasks.start(0), tasks.start(1);
  }
};

TEST_CASE("no step runs on a task that is back before those that send to it know") {
  RelayedTasks t;
  auto& [tasks, through, relay] = t;
  const auto engine = tasks.client();
  Graph graph(engine->ops());
  const Scope s(graph);
  const Output x = s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{3}}});
  const Output sent = s.device("/job:worker/task:1/cpu:0").op("Neg", {x});
  const Output y = s.device("/job:worker/task:0/cpu:0").op("Mul", {sent, s.constant(Tensor::scalar(-1.0f))});
  Session session(*engine, graph);
  const RunOptions options{.deadline = std::chrono::minutes(1)};
  const auto run = [&] { return session.run({{x, ramp(3)}}, {y}, {}, options); };
  REQUIRE(run().ok());
  // Task 1 does not hear of the end of task 0: its part of a step sends to the task's former life, and ends.
  relay->freeze();
  while (relay->freezes() < 1) std::this_thread::yield();
  tasks.workers[0].reset();
  relay.reset();
  tasks.start(0);
  const auto back = [&] { return cluster_status(*engine)[0]; };
  while (!back().up || back().lives < 2) std::this_thread::yield();
  const auto early = run();
  REQUIRE_FALSE(early.ok());
  CHECK(early.error().code == Code::kUnavailable);
  CHECK_THAT(early.error().message, Catch::Contains("it is not connected to /job:worker/replica:0/task:"));
  relay = std::make_unique<Relay>(through, tasks.path(1));
  while (!back().ready) std::this_thread::yield();
  while (!cluster_status(*engine)[1].ready) std::this_thread::yield();
  const auto late = run();
  INFO((late.ok() ? "" : late.error().str()));
  REQUIRE(late.ok());
  CHECK((*late)[0].identical(ramp(3)));
}

TEST_CASE("tasks that lose one another, but not the client, are not ready until they are connected again") {
  RelayedTasks t;
  auto& [tasks, through, relay] = t;
  const auto engine = tasks.client();
  Graph graph(engine->ops());
  const Scope s(graph);
  const Output x = s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{3}}});
  const Output sent = s.device("/job:worker/task:0/cpu:0").op("Neg", {x});
  const Output y = s.device("/job:worker/task:1/cpu:0").op("Square", {sent});
  Session session(*engine, graph);
  std::atomic<int> told = 0;
  const auto watching = watch_cluster(*engine, [&] { ++told; });
  const auto first = [&] { return cluster_status(*engine)[0]; };
  for (int round = 0; round < 2; ++round) {
    REQUIRE(session.run({{x, ramp(3)}}, {y}).ok());
    CHECK((first().ready && first().reason.empty()));
    const int before = told;
    relay.reset();
    while (first().ready) std::this_thread::yield();
    CHECK(first().up);
    CHECK_THAT(first().reason, Catch::Contains("task:1"));
    while (told == before) std::this_thread::yield();
    refused(session.run({{x, ramp(3)}}, {y}), Code::kUnavailable,
            "/job:worker/replica:0/task:0: it is not connected to /job:worker/replica:0/task:1");
    CHECK(session.run({{x, ramp(3)}}, {sent}).ok());  // needs task 0 alone
    relay = std::make_unique<Relay>(through, tasks.path(1));
    while (!first().ready) std::this_thread::yield();
  }
  REQUIRE(session.run({{x, ramp(3)}}, {y}).ok());
  for (const TaskStatus& task : cluster_status(*engine)) CHECK((task.ready && task.lives == 1));
}

namespace {

/// Task 0 counts a step and sends a value to task 1, which fetches it. The client reaches task 1 by one relay, task 0
/// by another, and loses it after a moment's silence.
struct SentAndEnded {
  SentAndEnded() : tasks(2, false), to_client(tasks.directory.file("client")), to_task(tasks.directory.file("task")) {
    tasks.of_task = [this](ClusterOptions& options, int task) {
      if (task != 0) return;
      options.spec = tasks.options_by(1, to_task).cluster.spec;
      options.silence = std::chrono::seconds(2);
    };
    by_client = std::make_unique<Relay>(to_client, tasks.path(1));
    by_task = std::make_unique<Relay>(to_task, tasks.path(1));
    tasks.start(0), tasks.start(1);
    auto made = Engine::create(tasks.options_by(1, to_client));
    INFO((made.ok() ? "" : made.error().str()));
    REQUIRE(made.ok());
    engine = std::move(*made);
    graph = std::make_unique<Graph>(engine->ops());
    const Scope first = Scope(*graph).device("/job:worker/task:0/cpu:0");
    const Output steps = first.op("VarHandleOp", {}, {{"dtype", DType::kInt32}, {"shape", PartialShape{}}});
    count = first.op("ReadVariableOp", {steps}, {{"dtype", DType::kInt32}});
    const Node* const counts = first.node("AssignAddVariableOp", {steps, first.constant(1)});
    const Output sent = first.after({counts}).op("ReadVariableOp", {steps}, {{"dtype", DType::kInt32}});
    y = Scope(*graph).device("/job:worker/task:1/cpu:0").op("Neg", {sent});
    session = std::make_unique<Session>(*engine, *graph);
    REQUIRE(session->run({first.node("AssignVariableOp", {steps, first.constant(0)})}).ok());
    REQUIRE(session->run({y}).ok());
    REQUIRE(counted() == 1);
  }
  int32_t counted() {
    const auto now = session->run({count});
    REQUIRE(now.ok());
    return (*now)[0].data<int32_t>()[0];
  }
  /// A step whose part in task 0 has ended, while its value and its RUN stand before task 1.
  std::future<RunResult> begin() {
    by_task->stall_after(0);  // what is dialled anew too
    by_client->stall_after(0);
    auto step = session->run_future({}, {y}, {}, {.deadline = std::chrono::minutes(1)});
    while (counted() < 2) std::this_thread::yield();
    while (tasks.workers[0]->engine().impl().worker->running() > 0) std::this_thread::yield();
    return step;
  }
  void goes_on() { by_client->stall_after(UINT64_MAX); }

  SocketCluster tasks;
  const std::string to_client, to_task;
  std::unique_ptr<Relay> by_client, by_task;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Graph> graph;
  Output count, y;
  std::unique_ptr<Session> session;
};

}  // namespace

TEST_CASE("a step whose value is lost between two tasks, of which one had ended its part, ends") {
  SentAndEnded t;
  auto step = t.begin();
  const Engine& first = t.tasks.workers[0]->engine();
  const auto task = [&] { return cluster_status(first)[0]; };
  while (task().up) std::this_thread::yield();  // it has not given the task up
  t.by_task->freeze();
  while (t.by_task->freezes() < 1) std::this_thread::yield();  // what stands never comes
  t.by_task->stall_after(UINT64_MAX);
  while (!task().up) std::this_thread::yield();
  t.goes_on();
  const RunResult end = step.get();
  refused(end, Code::kUnavailable, "/job:worker/replica:0/task:1: nothing came from it for");
  const auto next = t.session->run({t.y});
  INFO((next.ok() ? "" : next.error().str()));
  REQUIRE(next.ok());
  for (const TaskStatus& task : cluster_status(*t.engine)) CHECK(task.lives == 1);
}

TEST_CASE("a step ends whose value is lost with the task that had ended its part") {
  SentAndEnded t;
  auto step = t.begin();
  t.tasks.workers[0].reset();
  while (cluster_status(*t.engine)[0].up) std::this_thread::yield();
  t.goes_on();
  refused(step.get(), Code::kUnavailable, "/job:worker/replica:0/task:0");
}

TEST_CASE("a task that is gone leaves the others ready, though they were never connected to it") {
  SocketCluster tasks(3, false);
  const std::string none = tasks.directory.file("none");
  bool reaches = true;
  tasks.of_task = [&](ClusterOptions& options, int task) {
    if (task == 0 && !reaches) options.spec = tasks.options_by(2, none).cluster.spec;
  };
  for (int task = 0; task < 3; ++task) tasks.start(task);
  const auto engine = tasks.client();
  const auto task = [&](size_t i) { return cluster_status(*engine)[i]; };
  tasks.workers[0].reset();
  reaches = false;
  tasks.start(0);
  while (task(0).lives < 2) std::this_thread::yield();
  while (!task(0).up || task(0).reason.find("none") == std::string::npos) std::this_thread::yield();
  CHECK_FALSE(task(0).ready);
  tasks.workers[2].reset();
  while (!task(0).ready || !task(1).ready) std::this_thread::yield();
  CHECK_FALSE(task(2).up);
}

TEST_CASE("a task that goes ends the steps that need it, and the session goes on when it is back") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  ThereAndBack t(*engine);
  REQUIRE(t.run(ramp(3)).ok());
  for (int round = 0; round < 3; ++round) {
    const Output queue = t.second.op(
        "FIFOQueueV2", {}, {{"component_types", std::vector<DType>{DType::kFloat32}}, {"capacity", int64_t{1}}});
    const Output waits = t.first.op(
        "Neg", {t.second.op("QueueDequeueV2", {queue}, {{"component_types", std::vector<DType>{DType::kFloat32}}})});
    auto waiting = t.session.run_future({}, {waits});
    const auto ended = [&] { return waiting.wait_for(std::chrono::seconds(0)) == std::future_status::ready; };
    while (tasks.workers[1]->engine().impl().worker->running() == 0 && !ended()) std::this_thread::yield();
    tasks.workers[1].reset();
    const auto lost = waiting.get();
    refused(lost, Code::kUnavailable, "task:1");
    CHECK(t.session.run({{t.x, ramp(2)}}, {t.there}).ok());  // needs task 0 alone
    tasks.start(1);
    t.check_comes_back(ramp(4));  // the client dials again by itself
  }
}

TEST_CASE("what a client asked for before it gave a task up is not done once it is connected anew") {
  SocketCluster tasks(1, false);
  tasks.options.scheduler_threads = 1;
  tasks.start(0);
  tasks.options.scheduler_threads = 0;
  tasks.options.cluster.silence = std::chrono::seconds(2);  // of the client
  const std::string through = tasks.directory.file("relay");
  Relay relay(through, tasks.path(0));
  const auto engine = Engine::create(tasks.options_by(0, through));
  REQUIRE(engine.ok());
  Graph graph((*engine)->ops());
  Scope scope(graph);
  const Scope on = scope.device("/job:worker/task:0");
  const std::vector<DType> types = {DType::kFloat32};
  const Output queue =
      on.op("FIFOQueueV2", {}, {{"component_types", types}, {"shared_name", std::string("of floats")}});
  const Output x = on.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape::unknown()}});
  const Output taken = on.op("Mul", {on.op("QueueDequeueV2", {queue}, {{"component_types", types}}), x});
  const Output waiting = on.op("QueueSizeV2", {queue});
  const Node* put = on.node("QueueEnqueueV2", {queue, on.constant(7.f)});
  Session session(**engine, graph);
  REQUIRE(session.run(waiting).ok());
  // The task's actors stand still, while it makes connections and reads what comes.
  std::promise<void> stands, goes_on;
  tasks.workers[0]->engine().impl().system().spawn([&] {
    stands.set_value();
    goes_on.get_future().wait();
  });
  stands.get_future().wait();
  const int64_t lives = cluster_status(**engine)[0].lives;
  const uint64_t before = relay.bytes();
  const Tensor large = ramp(10'000);
  auto lost = session.run_future({{x, large}}, {taken});
  while (relay.bytes() < before + large.bytes()) std::this_thread::yield();
  relay.stall_after(0);
  const RunResult end = lost.get();
  relay.stall_after(UINT64_MAX);
  while (cluster_status(**engine)[0].lives == lives) std::this_thread::yield();
  goes_on.set_value();
  refused(end, Code::kUnavailable, "nothing came from it");

  RunResult done = session.run({put});
  while (!done.ok() && done.error().code == Code::kUnavailable) done = session.run({put});
  INFO((done.ok() ? "" : done.error().str()));
  REQUIRE(done.ok());
  while (tasks.workers[0]->engine().impl().worker->running() > 0) std::this_thread::yield();
  const auto left = session.run(waiting);
  REQUIRE(left.ok());
  CHECK((*left)[0].identical(Tensor::scalar<int32_t>(1)));
}

TEST_CASE("a task at whose address a stranger has been comes back") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  ThereAndBack t(*engine);
  REQUIRE(t.run(ramp(3)).ok());
  tasks.workers[1].reset();
  EngineOptions other = tasks.options;
  other.cluster.spec.replace(other.cluster.spec.find("\"test\""), 6, "\"other\"");
  other.cluster.job = "worker";
  other.cluster.task = 1;
  {
    const auto stranger = ClusterWorker::start(other);
    INFO((stranger.ok() ? "" : stranger.error().str()));
    REQUIRE(stranger.ok());
    while (cluster_status(*engine)[1].reason.find("of 'other'") == std::string::npos) std::this_thread::yield();
    refused(t.run(ramp(4)), Code::kUnavailable, "task:1");
  }
  tasks.start(1);
  t.check_comes_back(ramp(4));
}

TEST_CASE("what watches a cluster hears of tasks that go and come, and may throw") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  ThereAndBack t(*engine);
  std::atomic<int> heard = 0;
  const auto watch = watch_cluster(*engine, [&] {
    if (++heard % 2 == 0) throw std::runtime_error("not now");
    throw 1;
  });
  tasks.workers[1].reset();
  while (heard == 0) std::this_thread::yield();
  tasks.start(1);
  while (!t.run(ramp(4)).ok()) std::this_thread::yield();
  CHECK(heard >= 2);
}

TEST_CASE("what watches a cluster may begin watches and end them, its own too") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  ThereAndBack t(*engine);
  std::atomic<int> heard = 0, ended = 0, begun = 0;
  std::shared_ptr<void> own, other, late;
  own = watch_cluster(*engine, [&] {
    other.reset();
    late = watch_cluster(*engine, [&] { ++begun; });
    ++heard;
    own.reset();
  });
  other = watch_cluster(*engine, [&] { ++ended; });
  tasks.workers[1].reset();
  while (begun == 0) std::this_thread::yield();
  tasks.start(1);
  while (!t.run(ramp(4)).ok()) std::this_thread::yield();
  CHECK(heard == 1);
  CHECK(ended == 0);
}
