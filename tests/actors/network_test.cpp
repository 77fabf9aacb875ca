// SPDX-License-Identifier: Apache-2.0
// A cluster over sockets, its tasks and its client in one process: what it gives, who may come and go, and what becomes
// of steps when somebody goes.
#include <future>
#include <thread>

#include "actors/engine_impl.h"
#include "actors/network.h"
#include "tests/actors/relay.h"
#include "tests/actors/socket_cluster.h"
#include "tests/engine/fixtures.h"
#include "tests/repeats.h"
#include "troupe/cluster.h"

using namespace troupe;

namespace {

/// x on task 0, its negative on task 1, and back.
struct ThereAndBack {
  explicit ThereAndBack(Engine& engine, SessionOptions options = {})
      : graph(engine.ops()), scope(graph), first(scope.device("/job:worker/task:0")),
        second(scope.device("/job:worker/task:1")), session(engine, graph, options) {
    x = scope.named("x").op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape::unknown()}});
    there = first.op("Identity", {x});
    negative = second.op("Neg", {there});
    back = first.op("Mul", {negative, scope.constant(Tensor::scalar(-1.0f))});  // two of Neg would be left out
  }
  RunResult run(const Tensor& value, RunOptions options = {}) { return session.run({{x, value}}, {back}, {}, options); }
  Graph graph;
  Scope scope, first, second;
  Session session;
  Output x, there, negative, back;
};

Tensor ramp(int64_t n) {
  Tensor out = *Tensor::make(DType::kFloat32, Shape{n});
  float* v = static_cast<float*>(out.mutable_raw());
  for (int64_t i = 0; i < n; ++i) v[i] = static_cast<float>(i % 1000) - 500;
  return out;
}

}  // namespace

TEST_CASE("tensors small and large go from task to task and come back as they were") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  CHECK(engine->devices() == std::vector<std::string>{"/job:localhost/replica:0/task:0/device:cpu:0",
                                                      "/job:worker/replica:0/task:0/device:cpu:0",
                                                      "/job:worker/replica:0/task:1/device:cpu:0"});
  ThereAndBack t(*engine);
  for (const int64_t n : {0, 1, 1000, 20'000, 1 << 20, many(40 << 20)}) {
    const Tensor value = ramp(n);
    const auto result = t.run(value);
    INFO(n << (result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    CHECK((*result)[0].identical(value));
  }
  // Strings, and what no process can send.
  const Output text = t.second.op(
      "Identity",
      {t.first.op("Identity", {t.scope.constant(Tensor::of<std::string>({"a", "", "long enough to be elsewhere"}))})});
  const auto strings = t.session.run({text});
  REQUIRE(strings.ok());
  CHECK((*strings)[0].data<std::string>()[2] == "long enough to be elsewhere");
}

TEST_CASE("more fetches than a frame has tensors are an error that names the task") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  ThereAndBack t(*engine);
  const std::vector<Output> fetches((1 << 16) + 1, t.negative);
  refused(t.session.run({{t.x, ramp(1)}}, fetches), Code::kResourceExhausted,
          "its fetches cannot be sent from /job:worker/replica:0/task:1: ");
  CHECK(t.run(ramp(1)).ok());
}

TEST_CASE("handles and lists that would be fetched from another task, or fed to one, are an error of their node") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  ThereAndBack t(*engine);
  const Attrs floats = {{"component_types", std::vector<DType>{DType::kFloat32}}};
  const Attrs list_of = {{"element_dtype", DType::kFloat32}, {"shape_type", DType::kInt32}};
  const auto empty_list = [&](const Scope& on, const std::string& name) {
    return on.named(name).op("EmptyTensorList", {on.constant(Tensor::of<int32_t>({2})), on.constant(3)}, list_of);
  };
  const auto names = [&](const RunResult& result, const std::string& node, const std::string& says) {
    refused(result, Code::kUnimplemented, says);
    CHECK(result.error().node == node);
  };
  const Output queue = t.first.named("queue").op("FIFOQueueV2", {}, floats);
  names(t.session.run(queue), "queue", "a resource, which cannot be fetched from /job:worker/replica:0/task:0");
  const Output list = empty_list(t.second, "list");
  names(t.session.run(list), "list", "a variant, which cannot be fetched from /job:worker/replica:0/task:1");
  const auto own = t.session.run({empty_list(t.scope, "own"), t.scope.op("FIFOQueueV2", {}, floats)});
  REQUIRE(own.ok());
  const Output fed_list = t.second.named("fed_list").op("Placeholder", {}, {{"dtype", DType::kVariant}});
  const Output fed_queue = t.first.named("fed_queue").op("Placeholder", {}, {{"dtype", DType::kResource}});
  names(t.session.run({{fed_list, (*own)[0]}}, t.second.op("TensorListLength", {fed_list})), "fed_list",
        "a variant cannot be fed to /job:worker/replica:0/task:1");
  names(t.session.run({{fed_queue, (*own)[1]}}, t.first.op("QueueSizeV2", {fed_queue})), "fed_queue",
        "a resource cannot be fed to /job:worker/replica:0/task:0");
  // To the client's own nodes of a step that other tasks take part in, they can.
  const Output fed_here = t.scope.op("Placeholder", {}, {{"dtype", DType::kResource}});
  const auto size =
      t.session.run({{fed_here, (*own)[1]}, {t.x, ramp(2)}}, {t.scope.op("QueueSizeV2", {fed_here}), t.back});
  INFO((size.ok() ? "" : size.error().str()));
  REQUIRE(size.ok());
  CHECK((*size)[0].identical(Tensor::scalar<int32_t>(0)));
}

TEST_CASE("what comes to a task that is larger than its devices may hold does not end the connection") {
  SocketCluster tasks(2, false);
  tasks.options.memory_limit = 1 << 20;
  for (const int task : {0, 1}) tasks.start(task);
  const auto engine = tasks.client();
  ThereAndBack t(*engine);
  const Tensor large = ramp(1 << 20);
  const auto result = t.session.run({{t.x, large}}, {t.there});
  INFO((result.ok() ? "" : result.error().str()));
  REQUIRE(result.ok());
  CHECK((*result)[0].identical(large));
  // What a device makes itself is its own error.
  const Output filled = t.second.named("filled").op("Fill", {t.second.constant(Tensor::of<int32_t>({1 << 20})), t.x});
  const auto refusal = t.session.run({{t.x, Tensor::scalar(1.f)}}, {filled});
  refused(refusal, Code::kResourceExhausted, "limit 1048576");
  CHECK(refusal.error().node == "filled");
  CHECK(t.run(ramp(4)).ok());
  for (const TaskStatus& task : cluster_status(*engine)) CHECK(task.lives == 1);
}

TEST_CASE("steps of several threads are under way over sockets at once") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  ThereAndBack t(*engine);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (int k = 0; k < many(150); ++k) {
        const Tensor value = ramp(i == 0 ? 60'000 : 7 + i);
        const auto result = t.run(value);
        wrong += !result.ok() || !(*result)[0].identical(value);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("callbacks are never called on the thread that reads for all") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  ThereAndBack t(*engine);
  std::promise<std::thread::id> reader;
  engine->impl().network->multiplexer().post([&] { reader.set_value(std::this_thread::get_id()); });
  const std::thread::id reads = reader.get_future().get();
  const Tensor value = ramp(3);
  for (int i = 0; i < many(200); ++i) {  // one after the other, so that all are idle when something is read
    std::promise<std::thread::id> called;
    t.session.run_async({{t.x, value}}, {t.back}, {}, [&](RunResult result) {
      called.set_value(result.ok() ? std::this_thread::get_id() : std::thread::id());
    });
    const std::thread::id at = called.get_future().get();
    REQUIRE(at != std::thread::id());
    REQUIRE(at != reads);
  }
}

TEST_CASE("links between tasks are measured, and those within a task are not") {
  SocketCluster tasks(2, false);
  tasks.options.cpu_threads = {1, 1};
  tasks.start(0), tasks.start(1);
  tasks.options.cluster.measure_links = true;
  const auto engine = tasks.client();
  const Links& links = engine->impl().links;  // devices 0 and 1 are the client's
  for (const auto& [a, b] : {std::pair(0u, 2u), std::pair(1u, 5u), std::pair(2u, 4u), std::pair(5u, 3u)}) {
    CHECK(links.between(a, b).bandwidth <= 1e12);
    CHECK(links.between(a, b).bandwidth > 0);
    CHECK(links.between(a, b).latency_ns >= 100);
    CHECK(links.between(a, b).latency_ns == links.between(b, a).latency_ns);
  }
  CHECK(links.between(2, 3).bandwidth == 1e15);
  CHECK(links.between(0, 1).bandwidth == 1e15);
  // A step is placed by them.
  Graph graph(engine->ops());
  const Scope scope(graph);
  const Output sum = scope.op("Add", {scope.constant(Tensor::scalar(1.f)), scope.constant(Tensor::scalar(2.f))});
  Session session(*engine, graph, {.placing = Placing::kByCost});
  CHECK((*session.run({sum}))[0].identical(Tensor::scalar(3.f)));
  // A task that is gone is an error, not a wait.
  tasks.workers[1].reset();
  CHECK_FALSE(measure_links(*engine).ok());
}

TEST_CASE("errors, deadlines and cancelled steps are those of one process") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  ThereAndBack t(*engine);
  const Output queue = t.second.named("queue").op(
      "FIFOQueueV2", {}, {{"component_types", std::vector<DType>{DType::kFloat32}}, {"capacity", int64_t{1}}});
  const Output element =
      t.second.op("QueueDequeueV2", {queue}, {{"component_types", std::vector<DType>{DType::kFloat32}}});
  const Output waits = t.first.op("Neg", {element});
  RunResult late = make_error(Code::kInternal, "not run");
  // On a busy machine a deadline may pass before the second part begins.
  for (std::chrono::milliseconds allowed(30); late.error().node.empty() && allowed.count() < 20'000; allowed *= 2)
    late = t.session.run({}, {waits}, {}, {.deadline = allowed});
  refused(late, Code::kDeadlineExceeded, "ms, passed while it waited for this node");
  CHECK(late.error().node == element.node->name());
  CHECK_THAT(late.error().device, Catch::Contains("task:1"));
  CancelToken token;
  auto cancelled = t.session.run_future({}, {waits}, {}, {.cancel = token});
  token.cancel();
  refused(cancelled.get(), Code::kCancelled);
  // One part fails while another waits for what never comes.
  const Output zero = t.first.named("ratio").op(
      "FloorDiv", {t.first.constant(1), t.scope.op("Cast", {t.x}, {{"DstT", DType::kInt32}})});
  const Output sum = t.first.op("AddV2", {waits, t.first.op("Cast", {zero}, {{"DstT", DType::kFloat32}})});
  const auto failed = t.session.run({{t.x, f(0)}}, {sum});
  refused(failed, Code::kInvalidArgument);
  CHECK(failed.error().node == "ratio");
  CHECK(failed.error().device == "/job:worker/replica:0/task:0/device:cpu:0");
  CHECK(t.run(ramp(3)).ok());
}

TEST_CASE("a client waits for tasks that come later, and names those that do not come") {
  SocketCluster tasks(2, false);
  tasks.start(0);
  auto early = std::async(std::launch::async, [&] { return Engine::create(tasks.options); });
  tasks.start(1);
  auto engine = early.get();
  INFO((engine.ok() ? "" : engine.error().str()));
  REQUIRE(engine.ok());
  CHECK(ThereAndBack(**engine).run(ramp(5)).ok());
  engine->reset();
  tasks.workers[1].reset();
  EngineOptions impatient = tasks.options;
  impatient.cluster.wait = std::chrono::milliseconds(200);
  const auto missing = Engine::create(impatient);
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().code == Code::kUnavailable);
  INFO(missing.error().message);
  CHECK(missing.error().message.find("/job:worker/task:1") != std::string::npos);
  const auto status = probe_cluster(tasks.options.cluster, std::chrono::milliseconds(200));
  REQUIRE(status.ok());
  REQUIRE(status->size() == 2);
  CHECK((*status)[0].up);
  CHECK_FALSE((*status)[1].up);
}

TEST_CASE("a task that does not reach one that is up tells the client why") {
  std::string why;
  const auto check = [&](SocketCluster& tasks, std::chrono::nanoseconds limit) {
    tasks.start(0), tasks.start(1);
    const auto status = probe_cluster(tasks.options.cluster, limit);
    REQUIRE(status.ok());
    REQUIRE(status->size() == 2);
    for (const TaskStatus& task : *status) CHECK((task.up && !task.ready));
    CHECK_THAT((*status)[0].reason, Catch::Contains(why));
    CHECK((*status)[1].reason == "it waits for others");
    EngineOptions impatient = tasks.options;
    impatient.cluster.wait = limit;
    const auto engine = Engine::create(impatient);
    REQUIRE_FALSE(engine.ok());
    CHECK_THAT(engine.error().message, Catch::Contains("/job:worker/task:0 (" + why));
  };
  {
    SocketCluster tasks(2, false);
    const std::string elsewhere = tasks.directory.path() + "/elsewhere";
    tasks.of_task = [&](ClusterOptions& own, int task) {
      if (task == 0) own.spec = tasks.options_by(1, elsewhere).cluster.spec;
    };
    why = "dialing /job:worker/task:1 at unix:" + elsewhere + ": no connection";
    check(tasks, std::chrono::seconds(2));
  }
  {
    SocketCluster tasks(2, false);
    tasks.of_task = [&](ClusterOptions& own, int task) {
      if (task == 0) own.spec = fmt::format(R"({{"name":"test","cluster":{{"worker":["unix:{}"]}}}})", tasks.path(0));
    };
    why = "the list of tasks of /job:worker/task:0 has no /job:worker/task:1";
    check(tasks, std::chrono::hours(1));  // waiting changes nothing
  }
}

TEST_CASE("a second client is refused with the first one's name, and served when that has gone") {
  SocketCluster tasks(1);
  auto first = tasks.client();
  EngineOptions impatient = tasks.options;
  impatient.cluster.wait = std::chrono::milliseconds(300);
  const auto second = Engine::create(impatient);
  REQUIRE_FALSE(second.ok());
  INFO(second.error().message);
  CHECK(second.error().message.find("serves /job:client/task:") != std::string::npos);
  first.reset();
  const auto third = tasks.client();
  CHECK(third->devices().size() == 2);
}

TEST_CASE("clients that come and go as fast as they can leave nothing behind that keeps the next one waiting") {
  SocketCluster tasks(3);
  EngineOptions options = tasks.options;
  options.cluster.wait = std::chrono::seconds(20);  // less than the silence of 60 s, by which a peer is given up
  for (int i = 0; i < 20; ++i) {
    // Two at once: one is refused and tries again until the other has gone. One that hardly waits goes half connected.
    EngineOptions hasty = options;
    hasty.cluster.wait = std::chrono::milliseconds(i % 7);
    std::thread other([&] { (void)Engine::create(hasty).ok(); });
    const auto engine = Engine::create(options);
    other.join();
    INFO((engine.ok() ? "" : engine.error().message));
    REQUIRE(engine.ok());
    CHECK((*engine)->devices().size() == 4);
  }
}

TEST_CASE("clients that come at the same instant are served one after the other") {
  SocketCluster tasks(3);
  for (int round = 0; round < 5; ++round) {
    std::vector<std::future<Status>> clients;
    for (int i = 0; i < 4; ++i)
      clients.push_back(std::async(std::launch::async, [&]() -> Status {
        TROUPE_ASSIGN(const auto engine, Engine::create(tasks.options));
        return ThereAndBack(*engine).run(ramp(5)).status();
      }));
    for (auto& client : clients) {
      const Status status = client.get();
      INFO((status.ok() ? "" : status.error().str()));
      CHECK(status.ok());
    }
  }
}

TEST_CASE("a client that waits gives a task back that another one had lost") {
  SocketCluster tasks(2);
  // The way of the first client to the task is open or not.
  const std::string way = tasks.directory.path() + "/way";
  std::filesystem::create_symlink(tasks.path(0), way);
  auto first = Engine::create(tasks.options_by(0, way));
  REQUIRE(first.ok());
  auto second = std::async(std::launch::async, [&]() -> Status {
    TROUPE_ASSIGN(const auto engine, Engine::create(tasks.options));
    return ThereAndBack(*engine).run(ramp(5)).status();
  });
  std::filesystem::remove(way);
  tasks.workers[0].reset();
  tasks.start(0);
  const auto serves_client = [&] {
    const auto others = tasks.workers[0]->connected();
    return std::ranges::any_of(others, [](const std::string& name) { return name.starts_with("/job:client/"); });
  };
  while (!serves_client()) std::this_thread::yield();  // the second
  std::filesystem::create_symlink(tasks.path(0), way);
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(30);  // the second waits for longer
  RunResult result = make_error(Code::kUnavailable, "not run");
  while (!result.ok() && std::chrono::steady_clock::now() < give_up) result = ThereAndBack(**first).run(ramp(5));
  INFO((result.ok() ? "" : result.error().str()));
  CHECK(result.ok());
  first->reset();
  const Status served = second.get();
  INFO((served.ok() ? "" : served.error().str()));
  CHECK(served.ok());
}

TEST_CASE("tasks that serve another client are busy, which a probe does not wait for") {
  SocketCluster tasks(3, false);
  tasks.start(0), tasks.start(1), tasks.start(2);
  const auto client = tasks.client();
  const auto status = probe_cluster(tasks.options.cluster, std::chrono::hours(1));
  REQUIRE(status.ok());
  REQUIRE(status->size() == 3);
  for (const TaskStatus& task : *status) {
    CHECK(task.busy);
    CHECK_FALSE(task.up);
    CHECK_THAT(task.reason, Catch::Contains("serves /job:client/task:"));
  }
  for (const TaskStatus& task : cluster_status(*client)) CHECK((task.up && !task.busy));
}

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
    // The client dials again by itself; until then steps are refused at once.
    RunResult again = t.run(ramp(4));
    while (!again.ok() && again.error().code == Code::kUnavailable) again = t.run(ramp(4));
    INFO((again.ok() ? "" : again.error().str()));
    REQUIRE(again.ok());
    CHECK((*again)[0].identical(ramp(4)));
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
  RunResult again = t.run(ramp(4));
  while (!again.ok() && again.error().code == Code::kUnavailable) again = t.run(ramp(4));
  INFO((again.ok() ? "" : again.error().str()));
  REQUIRE(again.ok());
  CHECK((*again)[0].identical(ramp(4)));
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

TEST_CASE("variables stay with their tasks when a client goes") {
  SocketCluster tasks(2);
  const auto build = [](Engine& engine, auto&& use) {
    Graph graph(engine.ops());
    Scope scope(graph);
    const Scope on = scope.device("/job:worker/task:1");
    const Output v = on.op("VarHandleOp", {},
                           {{"dtype", DType::kFloat32}, {"shape", PartialShape{}}, {"shared_name", std::string("v")}});
    const Output read = on.op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}});
    on.named("set").op("AssignVariableOp", {v, on.constant(5.f)});
    Session session(engine, graph);
    use(session, read, graph.find("set"));
  };
  build(*tasks.client(), [](Session& s, Output, const Node* set) { REQUIRE(s.run({set}).ok()); });
  build(*tasks.client(), [](Session& s, Output read, const Node*) {
    const auto result = s.run({read});
    REQUIRE(result.ok());
    CHECK(number((*result)[0]) == 5.f);
  });
}

TEST_CASE("of variables that a former client left elsewhere a snapshot has those that the client's steps use") {
  SocketCluster tasks(3);
  const auto with_variable = [&](int task, const auto& then) {
    const auto engine = tasks.client();
    Graph graph(engine->ops());
    const Scope on = Scope(graph).device(fmt::format("/job:worker/task:{}", task));
    const Output v = on.op("VarHandleOp", {},
                           {{"shared_name", std::string("v")}, {"dtype", DType::kInt32}, {"shape", PartialShape{}}});
    Session session(*engine, graph);
    REQUIRE(session.run(on.node("AssignVariableOp", {v, on.constant(task)})).ok());
    then(*engine);
  };
  with_variable(0, [](Engine&) {});
  const auto has = [](int32_t value) {
    return [value](Engine& engine) {
      const auto taken = engine.snapshot().get();
      INFO((taken.ok() ? "" : taken.error().str()));
      REQUIRE(taken.ok());
      CHECK(taken->variables.at("v").identical(Tensor::scalar(value)));
    };
  };
  with_variable(1, has(1));
  with_variable(2, has(2));
  with_variable(0, has(0));
  // Who uses none is told of two.
  const auto of_none = tasks.client()->snapshot().get();
  REQUIRE_FALSE(of_none.ok());
  CHECK(of_none.error().code == Code::kAlreadyExists);
  CHECK(of_none.error().message.find("variable 'v' is on /job:worker/replica:0/task:") != std::string::npos);
}

TEST_CASE("variables that no frame carries are errors of snapshots and restoring that name the task") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  Graph graph(engine->ops());
  const Scope on = Scope(graph).device("/job:worker/task:1");
  const auto variable = [&](const std::string& name, DType dtype) {
    return on.op("VarHandleOp", {}, {{"dtype", dtype}, {"shape", PartialShape::scalar()}, {"shared_name", name}});
  };
  const Output list = on.op("EmptyTensorList", {on.constant<int32_t>(-1), on.constant<int32_t>(-1)},
                            {{"element_dtype", DType::kFloat32}});
  const Node* const set = on.node("AssignVariableOp", {variable("list", DType::kVariant), list});
  const Node* const other = on.node("AssignVariableOp", {variable("number", DType::kFloat32), on.constant(1.f)});
  REQUIRE(on.ok());
  Session session(*engine, graph);
  REQUIRE(session.run(other).ok());
  auto taken = engine->snapshot().get();
  REQUIRE(taken.ok());
  REQUIRE(session.run(set).ok());
  const auto refused = engine->snapshot().get();
  REQUIRE_FALSE(refused.ok());
  CHECK_THAT(refused.error().message, Catch::Contains("cannot be sent from /job:worker/replica:0/task:1: "));
  taken->variables["number"] = *Tensor::make(DType::kVariant, Shape{});
  const Status restored = engine->restore(*taken);
  REQUIRE_FALSE(restored.ok());
  CHECK_THAT(restored.error().message, Catch::Contains("asked of /job:worker/replica:0/task:1: "));
  taken->variables["number"] = Tensor::scalar(2.f);
  CHECK(engine->restore(*taken).ok());
}

TEST_CASE("snapshots, restoring and resets reach the variables of all tasks over sockets") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  Graph graph(engine->ops());
  Scope scope(graph);
  std::vector<const Node*> init, add;
  Outputs reads;
  for (int i = 0; i < 2; ++i) {
    const Scope on = scope.device("/job:worker/task:" + std::to_string(i));
    const std::string name = "v" + std::to_string(i);
    const Output v =
        on.op("VarHandleOp", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{}}, {"shared_name", name}});
    on.named(name + "/set").op("AssignVariableOp", {v, on.constant(0.f)});
    on.named(name + "/add").op("AssignAddVariableOp", {v, on.constant(1.f)});
    init.push_back(graph.find(name + "/set"));
    add.push_back(graph.find(name + "/add"));
    reads.push_back(on.op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}}));
  }
  Session session(*engine, graph);
  REQUIRE(session.run(init).ok());
  std::atomic<bool> stop{false};
  std::thread trains([&] {
    while (!stop)
      if (!session.run(add).ok()) std::abort();
  });
  for (int i = 0; i < many(50); ++i) {
    const auto snapshot = engine->snapshot().get();
    INFO((snapshot.ok() ? "" : snapshot.error().str()));
    REQUIRE(snapshot.ok());
    CHECK(number(snapshot->variables.at("v0")) == number(snapshot->variables.at("v1")));
  }
  stop = true;
  trains.join();
  REQUIRE(engine->restore({{{"v0", f(7)}, {"v1", f(8)}}}).ok());
  const auto values = session.run(reads);
  REQUIRE(values.ok());
  CHECK(number((*values)[0]) == 7.f);
  CHECK(number((*values)[1]) == 8.f);
  CHECK_FALSE(engine->restore({{{"v0", Tensor::scalar(1)}}}).ok());
  engine->reset_container("");
  refused(session.run(reads), Code::kFailedPrecondition, "no value yet");
  tasks.workers[1].reset();
  const auto lost = engine->snapshot().get();
  REQUIRE_FALSE(lost.ok());
  CHECK(lost.error().message.find("task:1") != std::string::npos);
}

TEST_CASE("a client's engine may end, and a session outlive it, while steps are under way over sockets") {
  for (int i = 0; i < repeats(8); ++i) {
    SocketCluster tasks(2);
    auto engine = tasks.client();
    ThereAndBack t(*engine);
    std::vector<std::future<RunResult>> steps;
    for (int k = 0; k < 20; ++k) steps.push_back(t.session.run_future({{t.x, ramp(100 * k)}}, {t.back}));
    engine.reset();
    for (auto& step : steps) {
      const RunResult result = step.get();
      CHECK((result.ok() || result.error().code == Code::kCancelled));
    }
    refused(t.run(ramp(1)), Code::kFailedPrecondition);
  }
}

TEST_CASE("the options of a cluster are checked") {
  EngineOptions options;
  options.cpu_threads = {1};
  options.cluster.spec = "{";
  CHECK(Engine::create(options).error().code == Code::kInvalidArgument);
  options.cluster.spec = "{\"cluster\":{\"worker\":[\"127.0.0.1:1\"]}}";
  options.cluster.silence = std::chrono::milliseconds(1);
  CHECK(Engine::create(options).error().code == Code::kInvalidArgument);
  options.cluster.silence = std::chrono::seconds(2);
  CHECK(ClusterWorker::start(options).error().code == Code::kInvalidArgument);
  options.cluster.job = "worker";
  options.cluster.task = 1;
  CHECK(ClusterWorker::start(options).error().message.find("worker") != std::string::npos);
}
