// SPDX-License-Identifier: Apache-2.0
// A cluster whose processes talk TLS: it gives what one without gives, connections that are cut are resumed, and wrong
// certificates are told at once.
#include <atomic>
#include <thread>

#include "tests/actors/relay.h"
#include "tests/actors/socket_cluster.h"
#include "tests/engine/fixtures.h"
#include "tests/net/keys.h"
#include "tests/repeats.h"
#include "troupe/cluster.h"

using namespace troupe;
using namespace troupe::testing;
using Catch::Contains;

namespace {

ClusterTls tls_of(const net::TlsFiles& files) { return {files.ca, files.certificate, files.key}; }

/// Tasks of the cluster "mine", and their client, with certificates.
struct TlsCluster : SocketCluster {
  explicit TlsCluster(int count, bool start_all = true) : SocketCluster(count, false) {
    options.cluster.spec.replace(options.cluster.spec.find("\"test\""), 6, "\"mine\"");
    options.cluster.tls = tls_of(keys.files(client_named()));
    of_task = [this](ClusterOptions& own, int task) { own.tls = tls_of(keys.files(task_named("worker", task))); };
    for (int i = 0; start_all && i < count; ++i) start(i);
  }
  TestKeys keys;
};

/// x on task 0, its negative on task 1, and back.
struct RoundTrip {
  explicit RoundTrip(Engine& engine) : graph(engine.ops()), session(engine, graph) {
    const Scope scope(graph), first = scope.device("/job:worker/task:0"), second = scope.device("/job:worker/task:1");
    x = scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape::unknown()}});
    // Two of Neg would be left out.
    back = first.op("Mul", {second.op("Neg", {x}), scope.constant(Tensor::scalar(-1.0f))});
  }
  RunResult run(const Tensor& value) { return session.run({{x, value}}, {back}); }
  Graph graph;
  Session session;
  Output x, back;
};

Tensor numbers(int64_t n) {
  Tensor out = *Tensor::make(DType::kFloat32, Shape{n});
  float* v = static_cast<float*>(out.mutable_raw());
  for (int64_t i = 0; i < n; ++i) v[i] = static_cast<float>(i % 997) - 400;
  return out;
}

std::string start_error(EngineOptions options) {
  const auto engine = Engine::create(std::move(options));
  REQUIRE_FALSE(engine.ok());
  return engine.error().message;
}

}  // namespace

TEST_CASE("tensors small and large go by TLS from task to task and come back as they were") {
  TlsCluster tasks(2);
  const auto engine = tasks.client();
  RoundTrip t(*engine);
  for (const int64_t n : {0, 1, 1000, 20'000, 1 << 20, 8 << 20}) {
    const Tensor value = numbers(n);
    const auto result = t.run(value);
    INFO(n << (result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    CHECK((*result)[0].identical(value));
  }
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (int k = 0; k < many(60); ++k) {
        const Tensor value = numbers(i < 2 ? 60'000 : 7 + i);
        const auto result = t.run(value);
        wrong += !result.ok() || !(*result)[0].identical(value);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("connections of TLS that are cut are resumed, and no step is lost") {
  TlsCluster tasks(2);
  // The client reaches task 0 through a relay.
  const std::string through = tasks.directory.file("relay");
  Relay relay(through, tasks.path(0));
  const auto engine = Engine::create(tasks.options_by(0, through));
  REQUIRE(engine.ok());
  RoundTrip t(**engine);
  std::atomic<bool> done = false;
  std::thread cutter([&] {
    // After so many bytes more, so that it happens while something is under way.
    for (int i = 1; i <= many(15) && !done; ++i) {
      const uint64_t until = relay.bytes() + 700'000;
      while (relay.bytes() < until && !done) std::this_thread::yield();
      relay.cut();
    }
  });
  int64_t steps = 0;
  bool right = true;
  for (; right && (relay.cuts() < many(15) || steps < 20); ++steps) {
    const Tensor value = numbers(50'000 + 1000 * (steps % 7));
    const auto result = t.run(value);
    INFO("step " << steps << ": " << (result.ok() ? "" : result.error().str()));
    CHECK(result.ok());
    right = result.ok() && (*result)[0].identical(value);
  }
  done = true;
  cutter.join();
  CHECK(right);
}

TEST_CASE("a wrong certificate, or none, ends a client's wait at once, with the reason") {
  TlsCluster tasks(1);
  TestKeys others;
  EngineOptions options = tasks.options;
  options.cluster.tls = {};
  CHECK_THAT(start_error(options), Contains("/job:worker/task:0") && Contains("the dialer talks no TLS"));
  options.cluster.tls = tls_of(others.files(client_named()));
  CHECK_THAT(start_error(options), Contains("is not of this cluster's authority"));
  options.cluster.tls = tls_of(tasks.keys.files(task_named("worker", 0)));
  CHECK_THAT(start_error(options),
             Contains("is that of troupe://mine/job:worker/task:0, and this is troupe://mine/client"));
  options.cluster.tls.key = "";
  CHECK_THAT(start_error(options), Contains("TLS needs three files, and there is none of a key"));
  options.cluster.tls = {"/no/ca", "/no/certificate", "/no/key"};
  CHECK_THAT(start_error(options), Contains("'/no/ca': No such file"));
  CHECK_THAT(check_cluster(options.cluster).error().message, Contains("'/no/ca'"));

  options = tasks.options;
  options.cluster.job = "worker";
  const auto as_client = ClusterWorker::start(options);
  REQUIRE_FALSE(as_client.ok());
  CHECK_THAT(as_client.error().message, Contains("is that of troupe://mine/client, and this is"));
  CHECK(Engine::create(tasks.options).ok());
}

TEST_CASE("a task whose certificate is another's is reached by nobody, and one that has its own joins") {
  TlsCluster tasks(2, false);
  tasks.start(0);
  const auto right = tasks.of_task;
  TestKeys others;
  tasks.of_task = [&](ClusterOptions& own, int task) { own.tls = tls_of(others.files(task_named("worker", task))); };
  tasks.start(1);
  CHECK_THAT(start_error(tasks.options), Contains("1 of 2 tasks") || Contains("2 of 2 tasks"));
  CHECK_THAT(start_error(tasks.options), Contains("/job:worker/task:1 is not of this cluster's authority"));
  tasks.workers[1].reset();
  tasks.of_task = right;
  tasks.start(1);
  auto engine = Engine::create(tasks.options);
  REQUIRE(engine.ok());
  RoundTrip t(**engine);
  CHECK(t.run(numbers(10)).ok());
}

TEST_CASE("a cluster whose files of TLS are renewed on disk goes on, and takes them without a restart") {
  TlsCluster tasks(2, false);
  std::vector<net::TlsFiles> files;  // of tasks 0 and 1 and of the client, as their processes know them
  const auto name_of = [](size_t i) { return i < 2 ? task_named("worker", static_cast<int>(i)) : client_named(); };
  for (size_t i = 0; i < 3; ++i) {
    files.push_back(tasks.keys.files(name_of(i)));
    const std::string own_ca = tasks.keys.file(std::to_string(i) + ".ca");
    std::filesystem::copy_file(files[i].ca, own_ca);
    files[i].ca = own_ca;
  }
  tasks.options.cluster.tls = tls_of(files[2]);
  tasks.of_task = [&](ClusterOptions& own, int task) { own.tls = tls_of(files[static_cast<size_t>(task)]); };
  for (const int task : {0, 1}) tasks.start(task);
  const auto engine = tasks.client();
  RoundTrip t(*engine);
  const Tensor value = numbers(1000);
  REQUIRE(t.run(value).ok());

  // Another authority: whoever still showed what he began with would be refused.
  TestKeys others;
  for (size_t i = 0; i < 3; ++i) {
    const net::TlsFiles renewed = others.files(name_of(i));
    std::filesystem::copy_file(renewed.ca, files[i].ca, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::rename(renewed.certificate, files[i].certificate);
    std::filesystem::rename(renewed.key, files[i].key);
  }
  CHECK(t.run(value).ok());  // by the connections that there are
  std::atomic<int> news{0};
  const auto watch = watch_cluster(*engine, [&] { ++news, news.notify_all(); });
  const auto all_ready = [&] { return std::ranges::all_of(cluster_status(*engine), &TaskStatus::ready); };
  const auto wait_until = [&](bool ready) {
    for (int seen = news; all_ready() != ready; seen = news) news.wait(seen);
  };
  tasks.workers[1].reset();
  wait_until(false);
  tasks.start(1);
  wait_until(true);
  const auto result = t.run(value);
  INFO((result.ok() ? "" : result.error().str()));
  REQUIRE(result.ok());
  CHECK((*result)[0].identical(value));
}
