// SPDX-License-Identifier: Apache-2.0
// Clients of a cluster over sockets that wait for its tasks and for one another, come and go.
#include <future>
#include <thread>

#include "tests/actors/socket_cluster.h"
#include "tests/actors/there_and_back.h"

using namespace troupe;

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

TEST_CASE("a client may wait for ever, and be told of no silence") {
  SocketCluster tasks(2, false);
  EngineOptions patient = tasks.options;
  patient.cluster.wait = patient.cluster.silence = std::chrono::nanoseconds::max();
  auto early = std::async(std::launch::async, [&] { return Engine::create(patient); });
  tasks.start(0), tasks.start(1);
  auto engine = early.get();
  INFO((engine.ok() ? "" : engine.error().str()));
  REQUIRE(engine.ok());
  CHECK(ThereAndBack(**engine).run(ramp(5)).ok());
  engine->reset();
  const auto status = probe_cluster(patient.cluster, std::chrono::nanoseconds::max());
  REQUIRE(status.ok());
  for (const TaskStatus& task : *status) CHECK(task.up);
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
