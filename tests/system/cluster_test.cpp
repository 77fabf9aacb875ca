// SPDX-License-Identifier: Apache-2.0
// Clusters of real processes: troupe worker and cluster status, what run gives over workers, and workers that
// are killed, stopped and started again while steps run.
#include <filesystem>
#include <memory>
#include <random>

#include <arpa/inet.h>
#include <sys/socket.h>

#include "tests/repeats.h"
#include "tests/system/cluster.h"
#include "troupe/cluster.h"
#include "troupe/npy.h"
#include "troupe/scope.h"
#include "troupe/session.h"

namespace troupe::testing {
namespace {

using Catch::Contains;
using std::chrono::milliseconds;
using std::chrono::minutes;

/// A client's engine and a graph whose step begins on task 1 and then waits there.
struct Client {
  explicit Client(const Cluster& cluster, milliseconds silence = milliseconds(60'000))
      : engine(make(cluster, silence)), graph(engine->ops()) {
    const Scope far = Scope(graph).device("/job:worker/task:1/cpu:0");
    const auto queue = [&](const char* name) {
      return far.op("FIFOQueueV2", {},
                    {{"component_types", std::vector<DType>{DType::kFloat32}}, {"shared_name", std::string(name)}});
    };
    const auto out_of = [&](const Output& from) {
      return far.op("QueueDequeueV2", {from}, {{"component_types", std::vector<DType>{DType::kFloat32}}});
    };
    one = far.constant(Tensor::scalar(1.0f));
    const Output begun = queue("begun"), never = queue("never");
    const Node* const begin = far.node("QueueEnqueueV2", {begun, one});
    has_begun = out_of(begun);
    waits =
        far.after({begin}).op("QueueDequeueV2", {never}, {{"component_types", std::vector<DType>{DType::kFloat32}}});
    REQUIRE(far.status().ok());
    session = std::make_unique<Session>(*engine, graph);
  }
  static std::unique_ptr<Engine> make(const Cluster& cluster, milliseconds silence) {
    EngineOptions options{.cpu_threads = {1}};
    options.cluster.spec = cluster.json;
    options.cluster.heartbeat = silence / 4;
    options.cluster.silence = silence;
    auto out = Engine::create(options);
    INFO((out.ok() ? "" : out.error().str()));
    REQUIRE(out.ok());
    return std::move(*out);
  }
  /// A step that waits on task 1 already.
  std::future<RunResult> begin() {
    auto out = session->run_future({}, {waits});
    const auto result = session->run({has_begun});
    INFO((result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    return out;
  }
  /// Whether task 1 answers within a minute.
  bool works_again(Program& worker) {
    const auto until = std::chrono::steady_clock::now() + minutes(1);
    while (std::chrono::steady_clock::now() < until) {
      if (session->run({one}).ok()) return true;
      worker.read_for(milliseconds(10));
    }
    return false;
  }

  std::unique_ptr<Engine> engine;
  Graph graph;
  Output one, has_begun, waits;
  std::unique_ptr<Session> session;
};

/// Starts the cluster's worker 1 as process 1 of a namespace of its own: each of its lives has the same number.
std::unique_ptr<Program> start_as_process_1(const Cluster& cluster, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"unshare",
                                        "--pid",
                                        "--fork",
                                        "--kill-child",
                                        "sh",
                                        "-c",
                                        "echo \"process $$\"; exec \"$0\" \"$@\"",
                                        kTroupePath,
                                        "worker",
                                        "--cluster",
                                        cluster.file("cluster.json"),
                                        "--job",
                                        "worker",
                                        "--task",
                                        "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  auto out = std::make_unique<Program>("/usr/bin/env", arguments);
  REQUIRE(out->read_for(minutes(1), "/job:worker/task:1 listens at "));
  REQUIRE_THAT(out->out(), Catch::StartsWith("process 1\n"));
  return out;
}

/// Whether there may be namespaces of processes; else says that the test is skipped.
bool may_be_process_1() {
  const Ended ended = run({"unshare", "--pid", "--fork", "--kill-child", "true"}, "/usr/bin/env");
  if (ended.status != 0) WARN("skipped: no namespaces of processes here: " << ended.err);
  return ended.status == 0;
}

/// Two workers, the second over TCP, as machines have it.
struct MixedCluster : Cluster {
  MixedCluster() : Cluster(2) {
    json = R"({"cluster": {"worker": ["unix:)" + file("w0") + "\", \"" + own_loopback() + ":4712\"]}}";
    write("cluster.json", json);
  }
};

}  // namespace

TEST_CASE("cluster: run over two workers gives what one process gives") {
  const Cluster c(2);
  c.write("g.pbtxt", kGraph);
  const std::vector<std::string> steps = {"run", c.file("g.pbtxt"), "--init", "init",     "--steps",
                                          "3",   "--fetch",         "sum,y",  "--passes", "none"};
  const auto status = [&](const char* seconds) {
    return run({"cluster", "status", "--cluster", c.file("cluster.json"), "--timeout", seconds});
  };
  auto first = c.start(0, {"--devices", "cpu=2"});
  const auto half = status("0.3");
  CHECK_THAT(half.out, Contains("/job:worker/task:0  unix:" + c.file("w0") + "  up ") &&
                           Contains("/job:worker/task:1  unix:" + c.file("w1") + "  down ") &&
                           Contains("No such file or directory"));
  check_error(half, 1, {"1 of 2 tasks are not up"});
  auto second = c.start(1);
  const auto whole = status("60");
  CHECK(whole.status == 0);
  CHECK_THAT(whole.out, Contains("up     cpu:0, cpu:1\n") && Contains("up     cpu:0\n"));

  const auto alone = run(steps);
  CHECK(alone.status == 0);
  CHECK(alone.out == "sum float32[2] [-3, -3]\ny float32[2] [9, 9]\n");
  auto over = steps;
  over.insert(over.end(), {"--cluster", c.file("cluster.json")});
  for (int i = 0; i < 2; ++i) {
    const auto ended = run(over);
    INFO(ended.err);
    CHECK(ended.status == 0);
    CHECK(ended.out == alone.out);
  }
  c.write("other.pbtxt", R"(
      node { name: 'a' op: 'Const' device: '/job:ps/task:0/cpu:0' attr { key: 'dtype' value { type: DT_FLOAT } }
             attr { key: 'value' value { tensor { dtype: DT_FLOAT tensor_shape {} float_val: 3 } } } }
      node { name: 'b' op: 'Neg' device: '/job:worker/task:9' input: 'a' attr { key: 'T' value { type: DT_FLOAT } } })");
  const std::vector<std::string> elsewhere = {"run",       c.file("other.pbtxt"),  "--fetch",  "b",
                                              "--cluster", c.file("cluster.json"), "--passes", "none"};
  const auto softly = run(elsewhere);
  CHECK(softly.status == 0);
  CHECK(softly.out == "b float32[] -3\n");
  CHECK_THAT(softly.err,
             Contains("the cluster has no /job:ps/task:0 (asked for by 'a'), no /job:worker/task:9 (asked for "
                      "by 'b'); the nodes are placed where there is one of the kind"));
  auto traced = over;
  traced.insert(traced.end(), {"--trace", c.file("trace.json")});
  CHECK(run(traced).status == 0);
  const std::string trace = c.read(c.file("trace.json"));
  for (const char* part : {"task:0/device:cpu:1\"", "task:1/device:cpu:0\"", "\"name\":\"more\"", "\"name\":\"y\"",
                           "\"name\":\"send sum\"", "\"name\":\"receive sum\""})
    CHECK_THAT(trace, Contains(part));
  std::vector<std::string> by_environment = {"TROUPE_CLUSTER=" + c.json, kTroupePath};
  by_environment.insert(by_environment.end(), steps.begin(), steps.end());
  CHECK(run(by_environment, "/usr/bin/env").out == alone.out);

  CHECK(second->read_for(minutes(1), "has gone"));
  CHECK_THAT(second->err(), Contains("/job:client/task:") && Contains(" has come\n"));
  for (Program* const worker : {first.get(), second.get()}) {
    worker->signal(SIGTERM);
    CHECK(worker->wait() == 0);
    CHECK(std::ranges::count(worker->out(), '\n') == 1);
  }
  CHECK(!std::filesystem::exists(c.file("w0")));
}

TEST_CASE("cluster: a task that serves another client is busy, not down") {
  const Cluster c(2);
  const auto first = c.start(0), second = c.start(1);
  const auto client = Client::make(c, milliseconds(60'000));
  const auto busy = run({"cluster", "status", "--cluster", c.file("cluster.json"), "--timeout", "3600"});
  INFO(busy.err);
  CHECK(busy.status == 0);
  for (const char* worker : {"w0", "w1"}) CHECK_THAT(busy.out, Contains(c.file(worker) + "  busy   "));
  CHECK_THAT(busy.out, Contains("it serves /job:client/task:"));
}

TEST_CASE("cluster: status tells of tasks that are up and do not reach one another") {
  const Cluster c(2), other(2);
  const auto first = c.start(0);
  Program second(kTroupePath, {"worker", "--cluster", other.file("cluster.json"), "--job", "worker", "--task", "1"});
  REQUIRE(second.read_for(minutes(1), " listens at unix:"));
  // To the client both are there; the first one looks for the second where its own list says.
  const std::string list =
      R"({"cluster": {"worker": ["unix:)" + c.file("w0") + R"(", "unix:)" + other.file("w1") + "\"]}}";
  const auto status = run({"cluster", "status", "--cluster", list, "--timeout", "3"});
  CHECK(status.status == 1);
  CHECK_THAT(status.out, Contains(c.file("w0") +
                                  "  up     not connected to all that are up: dialing /job:worker/task:1 at "
                                  "unix:" +
                                  c.file("w1")));
  CHECK_THAT(status.err, Contains("2 of 2 tasks are not connected to all others"));
}

TEST_CASE("cluster: TF_CONFIG says which task a worker is") {
  const Cluster c(1);
  const std::string config =
      "TF_CONFIG=" + c.json.substr(0, c.json.size() - 1) + R"(, "task": {"type": "worker", "index": 0}})";
  Program worker("/usr/bin/env", {config, kTroupePath, "worker", "--quiet"});
  REQUIRE(worker.read_for(minutes(1), "/job:worker/task:0 listens at unix:"));
  CHECK(run({"cluster", "status", "--cluster", c.json}).status == 0);
  worker.signal(SIGINT);
  CHECK(worker.wait() == 0);
  CHECK(worker.err().empty());
}

TEST_CASE("cluster: a task is found at that of its host's addresses where it is, whoever is at the others") {
  const TemporaryDirectory directory;
  const std::string one = own_loopback(), two = "127.200" + one.substr(one.find('.', 4));
  directory.write("hosts", one + " several\n" + two + " several\n");
  const std::string names = "mount --bind " + directory.file("hosts") + " /etc/hosts && ";
  if (const Ended may = run({"unshare", "--mount", "sh", "-c", names + "true"}, "/usr/bin/env"); may.status != 0) {
    WARN("skipped: no file of hosts of one's own here: " << may.err);
    return;
  }
  const auto list = [](const std::string& name, const std::string& host) {
    return R"({"name": ")" + name + R"(", "cluster": {"worker": [")" + host + ":4000\"]}}";
  };
  const auto start = [&](const std::string& name, const std::string& host) {
    auto out = std::make_unique<Program>(
        kTroupePath, std::vector<std::string>{"worker", "--cluster", list(name, host), "--job", "worker"});
    REQUIRE(out->read_for(minutes(1), " listens at " + host + ":4000\n"));
    return out;
  };
  for (const auto& [mine, other] : {std::pair(one, two), std::pair(two, one)}) {
    const auto worker = start("mine", mine), stranger = start("other", other);
    const std::string status =
        std::string(kTroupePath) + " cluster status --timeout 60 --cluster '" + list("mine", "several") + "'";
    const Ended ended = run({"unshare", "--mount", "sh", "-c", names + "exec " + status}, "/usr/bin/env");
    INFO(ended.out << ended.err);
    CHECK(ended.status == 0);
    CHECK_THAT(ended.out, Contains("several:4000  up"));
  }
}

TEST_CASE("cluster: what is wrong is one line") {
  const Cluster c(1);
  const auto worker = [&](const std::string& json, std::vector<std::string> more = {"--job", "worker"}) {
    more.insert(more.begin(), {"worker", "--cluster", json});
    return run(more);
  };
  check_error(run({"worker"}), 2, {"--cluster", "TF_CONFIG"});
  check_error(worker("{\"cluster\""), 2, {"--cluster", "{\"cluster\""});
  check_error(worker(c.file("none.json")), 2, {"none.json", "No such file"});
  c.write("large.json", c.json + std::string(2 << 20, ' '));
  check_error(worker(c.file("large.json")), 2, {"bytes, at most 1048576"});
  check_error(worker(R"({"cluster": {"localhost": ["localhost:1"]}})", {"--job", "localhost"}), 2, {"'localhost'"});
  check_error(worker(c.path()), 2, {c.path(), "Is a directory"});
  check_error(worker(c.json, {}), 2, {"which task", "--job"});
  check_error(worker(c.json, {"--job", "worker", "--task", "1"}), 2, {"/job:worker/task:1"});
  check_error(worker(c.json, {"--job", "ps"}), 2, {"ps", "worker"});
  check_error(worker(c.json, {"--task", "0"}), 2, {"--job"});
  check_error(worker(c.json, {"--job", "worker", "--devices", "tpu=1"}), 2, {"tpu=1", "cpu=N"});
  check_error(worker(c.json, {"--job", "worker", "--silence", "300"}), 2, {"300", "200"});
  check_error(worker(R"({"cluster": {"worker": ["0.0.0.0:5000"]}})"), 2, {"0.0.0.0:5000", "--insecure"});
  check_error(worker(R"({"cluster": {"worker": ["host.example:5000"]}})"), 2,
              {"host.example:5000", "--tls", "--insecure"});
  check_error(run({"worker", "--tls", c.path()}), 2, {"--tls", "--cluster"});
  check_error(worker(c.json, {"--job", "worker", "--tls", c.file("none")}), 2,
              {"--tls", "none/ca.pem", "No such file"});
  check_error(run({"TROUPE_CLUSTER={}", kTroupePath, "run", "g"}, "/usr/bin/env"), 2, {"TROUPE_CLUSTER: "});
  check_error(run({"cluster", "status"}), 2, {"--cluster"});
  check_error(run({"place", "g", "--cluster", c.json, "--devices", "cpu=2"}), 2, {"--devices", "its own devices"});
  check_error(worker(R"({"cluster": {"worker": ["unix:)" + c.file("none/w0") + "\"]}}"), 1,
              {"not found: ", "none/w0", "No such file"});
  c.write("file", "");
  check_error(run({"cluster", "keys", "--cluster", c.json, "--out", c.file("file")}), 1,
              {"not found: ", "file/ca.key"});
  check_error(run({"launch", "-n", "1", "--", c.path()}), 1, {"failed precondition: ", c.path(), "Permission denied"});
  check_error(run({"cluster"}), 2, {"subcommand", "there are status, keys"});
  check_error(run({"cluster", "statsu", "--timeout", "1"}), 2, {"no subcommand 'statsu'; there are status, keys"});

  // The port of another one.
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(::listen(fd, 1) == 0);
  REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  const std::string port = std::to_string(ntohs(address.sin_port));
  check_error(worker(R"({"cluster": {"worker": ["127.0.0.1:)" + port + "\"]}}"), 1,
              {"already exists: ", "127.0.0.1:" + port, "in use"});
  ::close(fd);
  const auto held = c.start(0);
  check_error(worker(c.json), 1, {c.file("w0"), "in use"});
}

TEST_CASE("cluster: keys makes certificates, and those who have them talk TLS") {
  const Cluster c(2);
  c.write("g.pbtxt", kGraph);
  const std::string keys = c.file("keys");
  const std::vector<std::string> make = {"cluster", "keys", "--cluster", c.file("cluster.json"), "--out", keys};
  const auto made = run(make);
  INFO(made.err);
  CHECK(made.status == 0);
  CHECK_THAT(made.out, Contains("ca.pem: authority, new, until 2") &&
                           Contains("worker-1: troupe://troupe/job:worker/task:1, new, until 2") &&
                           Contains("client: troupe://troupe/client, new, until 2"));
  using std::filesystem::perms;
  const auto mode = [&](const std::string& name) { return std::filesystem::status(keys + "/" + name).permissions(); };
  CHECK(mode("ca.key") == perms(0600));
  CHECK(mode("worker-0/key.pem") == perms(0600));
  CHECK(mode("client") == perms(0700));

  const auto status = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"cluster", "status", "--cluster", c.file("cluster.json"), "--timeout", "60"});
    return run(more);
  };
  auto first = c.start(0, {"--tls", keys + "/worker-0"}, "worker", " with TLS");
  auto second = c.start(1, {"--tls", keys + "/worker-1"}, "worker", " with TLS");
  CHECK(status({"--tls", keys + "/client"}).status == 0);
  const auto ended = run({"TROUPE_TLS=" + keys + "/client", kTroupePath, "run", c.file("g.pbtxt"), "--fetch", "more",
                          "--cluster", c.file("cluster.json")},
                         "/usr/bin/env");
  INFO(ended.err);
  CHECK(ended.out == "more float32[2] [-1.5, -1.5]\n");
  const auto without = status({});
  CHECK(without.status == 1);
  CHECK(std::ranges::count(without.out, '\n') == 3);
  CHECK_THAT(without.out, Contains("the dialer talks no TLS, which is needed here (--tls)"));
  CHECK(second->read_for(minutes(1), "was refused a connection (TLS): the dialer talks no TLS"));
  check_error(status({"--tls", keys + "/worker-0"}), 2,
              {"--tls", "worker-0/certificate.pem", "this is troupe://troupe/client"});
  check_error(status({"--tls", keys}), 2, {"--tls", keys + "/certificate.pem", "No such file"});

  // Another authority's.
  const std::string others = c.file("others");
  REQUIRE(run({"cluster", "keys", "--cluster", c.file("cluster.json"), "--out", others}).status == 0);
  const auto stranger = status({"--tls", others + "/client"});
  CHECK(stranger.status == 1);
  CHECK_THAT(stranger.out, Contains("is not of this cluster's authority"));

  // What is there is kept, and what is missing is made.
  const std::string authority = TemporaryDirectory::read(keys + "/ca.pem");
  std::filesystem::remove_all(keys + "/worker-1");
  auto more = make;
  more.insert(more.end(), {"--client", "alice", "--days", "10"});
  const auto again = run(more);
  CHECK(again.status == 0);
  CHECK_THAT(again.out, Contains("ca.pem: authority, kept") &&
                            Contains("worker-0: troupe://troupe/job:worker/task:0, kept") &&
                            Contains("worker-1: troupe://troupe/job:worker/task:1, new") &&
                            Contains("client-alice: troupe://troupe/client/alice, new"));
  CHECK(TemporaryDirectory::read(keys + "/ca.pem") == authority);
  CHECK(status({"--tls", keys + "/client-alice"}).status == 0);

  // What is kept must be what it is for.
  const std::string first_kept = keys + "/worker-0", key = first_kept + "/key.pem";
  const auto refused = [&](const std::string& what) {
    check_error(run(make), 1, {"'" + first_kept + "' " + what, "remove it"});
    std::filesystem::remove_all(first_kept);
    CHECK(run(make).status == 0);
  };
  const auto copy_over = [](const std::string& from, const std::string& to) {
    std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing);
  };
  copy_over(keys + "/worker-1/certificate.pem", first_kept + "/certificate.pem");
  refused("has the certificate of troupe://troupe/job:worker/task:1, not of troupe://troupe/job:worker/task:0");
  for (const char* const file : {"/certificate.pem", "/key.pem"})
    copy_over(others + "/worker-0" + file, first_kept + file);
  refused("has a certificate of another authority");
  copy_over(others + "/ca.pem", first_kept + "/ca.pem");
  refused("has a certificate of another authority");
  copy_over(keys + "/worker-1/key.pem", key);
  refused("has no key of its certificate");
  std::filesystem::remove(key);
  check_error(run(make), 1, {key, "No such file"});
  std::filesystem::remove_all(first_kept);
  check_error(run({"cluster", "keys", "--cluster", R"({"cluster": {"client-a": ["localhost:1"]}})", "--out",
                   c.file("twice"), "--client", "a-0"}),
              1, {"client/a-0 would both have the folder", "client-a-0"});

  check_error(run({"cluster", "keys", "--out", keys}), 2, {"--cluster"});
  check_error(run({"cluster", "keys", "--cluster", c.json}), 2, {"--out"});
  more.back() = "0";
  check_error(run(more), 2, {"--days"});
  more = make;
  more.insert(more.end(), {"--client", "a/b"});
  check_error(run(more), 2, {"--client", "'a/b'"});
  std::filesystem::remove(keys + "/ca.key");
  check_error(run(make), 1, {keys, "ca.pem without ca.key"});
  more = make;
  more.back() = c.file("no/such");
  check_error(run(more), 1, {"no/such", "No such file"});
}

TEST_CASE("cluster: a worker that is killed ends the step, and one started again serves the same session") {
  const Cluster c(2);
  const auto first = c.start(0);
  auto second = c.start(1);
  Client client(c);
  auto step = client.begin();
  second->signal(SIGKILL);
  CHECK(second->wait() == -1);
  const auto result = step.get();
  REQUIRE(!result.ok());
  CHECK(result.error().code == Code::kUnavailable);
  CHECK_THAT(result.error().str(), Contains("/job:worker/replica:0/task:1"));
  second = c.start(1);
  CHECK(client.works_again(*second));
  auto again = client.begin();
  CHECK(again.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
}

TEST_CASE("cluster: a worker started again with the same process number and address is another life") {
  if (!may_be_process_1()) return;
  const MixedCluster c;
  const auto first = c.start(0);
  auto second = start_as_process_1(c);
  Client client(c);
  Graph graph(client.engine->ops());
  const Scope far = Scope(graph).device("/job:worker/task:1/cpu:0");
  const Output v = far.named("v").op("VarHandleOp", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{}}});
  const Node* const init = far.node("AssignVariableOp", {v, far.constant(Tensor::scalar(2.5f))});
  const Output value = far.op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}});
  REQUIRE(far.status().ok());
  Session session(*client.engine, graph);
  REQUIRE(session.run({init}).ok());

  for (int life = 2; life <= 4; ++life) {
    INFO("life " << life);
    const auto before = session.run({value});
    REQUIRE(before.ok());
    CHECK(before->at(0).data<float>()[0] == 2.5f);
    auto step = client.begin();
    second->signal(SIGKILL);  // the worker goes with it, by the same signal
    CHECK(second->wait() == -1);
    second = start_as_process_1(c);
    const auto result = step.get();
    REQUIRE(!result.ok());
    CHECK(result.error().code == Code::kUnavailable);
    CHECK_THAT(result.error().str(), Contains("/job:worker/replica:0/task:1"));
    REQUIRE(client.works_again(*second));
    const auto gone = session.run({value});
    REQUIRE(!gone.ok());
    CHECK(gone.error().code == Code::kFailedPrecondition);
    CHECK_THAT(gone.error().str(), Contains("'v'") && Contains("initial"));
    REQUIRE(session.run({init}).ok());
  }
}

TEST_CASE("cluster: training gets over a worker started again with the same process number, to the same bytes") {
  if (!may_be_process_1()) return;
  const MixedCluster c;
  const Training alone(c, "alone"), spread(c, "spread");
  const int epochs = kSlowness > 1 ? 2 : 8;
  REQUIRE(run(alone.arguments(epochs), kTrain).status == 0);
  const auto first = c.start(0, {"--cores", "1"});
  auto second = start_as_process_1(c, {"--cores", "1"});
  Program client(kTrain, spread.arguments(epochs, {"--cluster", c.file("cluster.json"), "--devices", "workers"}));
  REQUIRE(client.read_for(minutes(1), "epoch 1/"));
  second->signal(SIGKILL);
  CHECK(second->wait() == -1);
  second = start_as_process_1(c, {"--cores", "1"});
  const int status = client.wait();
  INFO(client.out() << client.err());
  REQUIRE(status == 0);
  CHECK_THAT(client.out(),
             Contains("lost at step ") && Contains("/job:worker/") && Contains("/task:1: ") && Contains("back after "));
  CHECK(spread.checkpoint() == alone.checkpoint());
}

TEST_CASE("cluster: a worker that stands still too long ends the step, and may go on") {
  const Cluster c(2);
  const auto first = c.start(0, {"--silence", "60000"});
  const auto second = c.start(1, {"--silence", "60000"});
  Client client(c, milliseconds(kSlowness > 1 ? 4000 : 400));
  auto step = client.begin();
  second->signal(SIGSTOP);
  const auto result = step.get();
  REQUIRE(!result.ok());
  CHECK(result.error().code == Code::kUnavailable);
  CHECK_THAT(result.error().str(), Contains("/job:worker/replica:0/task:1: nothing came from it for"));
  second->signal(SIGCONT);
  CHECK(client.works_again(*second));
}

TEST_CASE("cluster: examples run with --cluster") {
  for (const char* const example : {"first_graph", "shared_loop"}) {
    const std::string path = std::string("../examples/") + example;
    const auto ended = run({"launch", "-n", "1", "--", path}), alone = run({}, path.c_str());
    INFO(ended.err);
    CHECK(ended.status == 0);
    CHECK(ended.out == alone.out);
    CHECK(run({"--cluster", "{}"}, path.c_str()).status == 2);
  }
}

TEST_CASE("cluster: synchronous training on worker processes saves the bytes of one process") {
  const TemporaryDirectory directory;
  const std::string path = "../examples/train_images";
  const auto train = [&](const std::string& out, std::vector<std::string> before, std::vector<std::string> more) {
    std::vector<std::string> arguments = std::move(before);
    for (const std::string& a :
         {std::string("--replicas"), std::string("2"), std::string("--mode"), std::string("sync"),
          std::string("--epochs"), std::string("1"), std::string("--limit"), std::string("1280"),
          std::string("--model"), std::string("mlp"), std::string("--out"), directory.file(out)})
      arguments.push_back(a);
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ended ended = run(arguments, more.empty() ? path.c_str() : kTroupePath);
    INFO(ended.out << ended.err);
    REQUIRE(ended.status == 0);
    std::string bytes;
    for (const auto& entry : std::filesystem::directory_iterator(directory.file(out + "/checkpoints")))
      if (entry.path().extension() == ".safetensors") bytes += TemporaryDirectory::read(entry.path().string());
    return bytes;
  };
  const std::string alone = train("alone", {}, {});
  const std::string spread = train("spread", {"launch", "-n", "2", "--", path}, {"--devices", "workers"});
  CHECK(alone.size() > 1000);
  CHECK(alone == spread);
}

TEST_CASE("cluster: another model, or another number of replicas, trains on the tasks of a client before") {
  const Cluster c(2);
  const auto first = c.start(0), second = c.start(1);
  int runs = 0;
  const auto train = [&](const std::string& model, const std::string& mode, const std::string& replicas) {
    const Ended ended =
        run({"--cluster", c.file("cluster.json"), "--devices", "workers", "--replicas", replicas, "--mode", mode,
             "--epochs", "1", "--limit", "256", "--model", model, "--out", c.file("run_" + std::to_string(runs++))},
            "../examples/train_images");
    INFO(model << " " << mode << "\n" << ended.out << ended.err);
    CHECK(ended.status == 0);
  };
  train("mlp", "zero", "2");
  train("lenet", "sync", "2");
  train("mlp", "zero", "1");
}

TEST_CASE("cluster: training gets over kills of workers, servers and itself at random moments, to the same bytes") {
  const Cluster c(2, 1);
  const Training alone(c, "alone"), spread(c, "spread");
  const int kills = 3 * (kSlowness > 1 ? 1 : 20), epochs = kSlowness > 1 ? 3 : 30;
  const auto begun = std::chrono::steady_clock::now();
  REQUIRE(run(alone.arguments(epochs), kTrain).status == 0);
  // So often that it is not done before.
  const int64_t pause = (std::chrono::steady_clock::now() - begun).count() * 2 / kills;

  const std::vector<std::string> quiet = {"--quiet", "--cores", "1", "--silence", "1000"};
  // A machine that is so busy that a task seems lost is got over, too.
  std::unique_ptr<Program> tasks[] = {c.start(0, quiet), c.start(1, quiet), c.start(0, quiet, "ps")};
  const auto arguments = spread.arguments(
      epochs, {"--cluster", c.file("cluster.json"), "--devices", "workers", "--servers", "--silence", "1000"});
  auto client = std::make_unique<Program>(kTrain, arguments);
  // The first amid training, whatever the machine does; those below may all come while the client connects.
  REQUIRE(client->read_for(minutes(2), "epoch 1/"));
  tasks[0]->signal(SIGKILL);
  CHECK(tasks[0]->wait() == -1);
  tasks[0] = c.start(0, quiet);
  CHECK(client->read_for(minutes(2), "back after "));
  std::mt19937 random(7);
  std::string told;
  bool ended = false;
  for (int i = 0; i < kills && !ended; ++i) {
    ended = client->read_for(std::chrono::nanoseconds(random() % static_cast<uint64_t>(pause)), " waited for input ");
    const auto victim = random() % 4;
    if (victim < 3) {
      tasks[victim]->signal(SIGKILL);
      CHECK(tasks[victim]->wait() == -1);
      tasks[victim] = c.start(victim == 1, quiet, victim == 2 ? "ps" : "worker");
    } else {
      client->signal(SIGKILL);
      const int killed = client->wait();
      told += client->out() + client->err();
      INFO(told);
      REQUIRE(killed == -1);
      client = std::make_unique<Program>(kTrain, arguments);
    }
  }
  CHECK_FALSE(ended);  // else it was too short for so many
  const int status = client->wait();
  INFO(told << client->out() << client->err());
  REQUIRE(status == 0);
  CHECK_THAT(told + client->out(), Contains("lost at step ") && Contains("back after "));
  if (kSlowness <= 1)
    CHECK_THAT(told + client->out(), Contains(" are made again\n"));  // of 60 kills, one between saves
  CHECK(spread.checkpoint() == alone.checkpoint());
}

TEST_CASE("cluster: a worker that stands still for less than the time-out loses nothing") {
  const Cluster c(2);
  const Training alone(c, "alone"), spread(c, "spread");
  const int epochs = kSlowness > 1 ? 2 : 8;
  REQUIRE(run(alone.arguments(epochs), kTrain).status == 0);
  const std::vector<std::string> silence = {"--silence", std::to_string(static_cast<int>(4000 * kSlowness))};
  auto more = silence;
  more.insert(more.end(), {"--cores", "1"});
  const auto first = c.start(0, more), second = c.start(1, more);
  more = silence;
  more.insert(more.end(), {"--cluster", c.file("cluster.json"), "--devices", "workers"});
  Program client(kTrain, spread.arguments(epochs, more));
  REQUIRE(client.read_for(minutes(1), "epoch 1/"));
  second->signal(SIGSTOP);
  CHECK_FALSE(client.read_for(milliseconds(1000), " waited for input "));
  second->signal(SIGCONT);
  const int status = client.wait();
  INFO(client.out() << client.err());
  REQUIRE(status == 0);
  CHECK(client.out().find("lost") == std::string::npos);
  CHECK(spread.checkpoint() == alone.checkpoint());
}

}  // namespace troupe::testing
