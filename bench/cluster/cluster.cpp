// SPDX-License-Identifier: Apache-2.0
// What does it cost that a step runs in several processes? Workers are processes of their own over loopback TCP:
// tensors that go from worker to worker and back within a step, beside the same bytes by plain send() and recv()
// between two processes and beside two actors of CAF by its own network (BASP), in turns; what goes one way in bulk,
// with TLS too; empty steps of 1 to N workers; how soon a worker that is killed or frozen is noticed; what an idle
// worker takes; how far a worker grows that has 10 GiB for one that is stopped; rows of a large embedding beside those
// of a small one. Prints one Markdown table for each.
#include <CLI/CLI.hpp>
#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "net/certificates.h"
#include "programs/program.h"
#include "troupe/cluster.h"
#include "troupe/scope.h"
#include "troupe/session.h"

using namespace troupe;

namespace {

using Clock = std::chrono::steady_clock;
double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

double quantile(std::vector<double> values, double q) {
  std::ranges::sort(values);
  return values[std::min(values.size() - 1, static_cast<size_t>(q * static_cast<double>(values.size())))];
}

/// A listening TCP socket on loopback, and its port.
int listen_somewhere(int& port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  bind(fd, any, size);
  listen(fd, 16);
  getsockname(fd, any, &size);
  port = ntohs(address.sin_port);
  return fd;
}

/// A child process that ends with this one.
template <class F> pid_t child(F&& run) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  run();
  _exit(0);
}

void end(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

/// Files of TLS for the tasks and the client of a cluster, for as long as this lives.
class Keys {
 public:
  static Result<std::unique_ptr<Keys>> make(int tasks) {
    std::string folder = (std::filesystem::temp_directory_path() / "bench_cluster_XXXXXX").string();
    if (!mkdtemp(folder.data())) return make_error(Code::kInternal, "no folder for keys");
    std::unique_ptr<Keys> out(new Keys(folder));
    const net::Validity day{time(nullptr) - 3600, time(nullptr) + 86400};
    TROUPE_ASSIGN(const auto authority, net::make_authority("troupe", day));
    TROUPE_RETURN_IF_ERROR(out->write("ca.pem", authority.certificate));
    for (int task = -1; task < tasks; ++task) {
      net::CertificateName name{"troupe", {}};
      if (task >= 0) name.task = net::TaskId{"worker", task};
      TROUPE_ASSIGN(const auto pair, net::issue_certificate(authority, name, day));
      TROUPE_RETURN_IF_ERROR(out->write(fmt::format("{}.pem", task), pair.certificate));
      TROUPE_RETURN_IF_ERROR(out->write(fmt::format("{}.key", task), pair.key));
    }
    return out;
  }
  ~Keys() { std::filesystem::remove_all(folder_); }
  Keys(const Keys&) = delete;
  /// Of a task; -1: of a client.
  ClusterTls files(int task) const {
    return {folder_ + "/ca.pem", fmt::format("{}/{}.pem", folder_, task), fmt::format("{}/{}.key", folder_, task)};
  }

 private:
  explicit Keys(std::string folder) : folder_(std::move(folder)) {}
  Status write(const std::string& name, const std::string& text) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    std::filesystem::permissions(path, std::filesystem::perms::owner_read);
    return {};
  }
  const std::string folder_;
};

/// Worker processes on loopback, each with one device of one thread.
class Workers {
 public:
  explicit Workers(int count, const Keys* keys = nullptr) : keys_(keys) {
    std::string list;
    for (int i = 0; i < count; ++i) {
      int port = 0;
      close(listen_somewhere(port));
      list += fmt::format("{}\"127.0.0.1:{}\"", i ? "," : "", port);
    }
    options_.cpu_threads = {1};
    options_.cluster.spec = fmt::format("{{\"cluster\":{{\"worker\":[{}]}}}}", list);
    for (int i = 0; i < count; ++i) pids.push_back(start(i));
  }
  ~Workers() {
    for (const pid_t pid : pids) end(pid);
  }
  Workers(const Workers&) = delete;
  pid_t start(int task) const {
    EngineOptions own = options_;
    own.cluster.job = "worker";
    own.cluster.task = task;
    if (keys_) own.cluster.tls = keys_->files(task);
    return child([&] {
      const auto worker = ClusterWorker::start(own);
      if (worker.ok())
        while (true) pause();
    });
  }
  Result<std::unique_ptr<Engine>> client() const {
    EngineOptions own = options_;
    if (keys_) own.cluster.tls = keys_->files(-1);
    return Engine::create(own);
  }

  std::vector<pid_t> pids;

 private:
  const Keys* keys_;
  EngineOptions options_;
};

/// An echo of so many bytes by plain calls, in a process of its own.
class Echo {
 public:
  explicit Echo(size_t bytes) : buffer_(bytes) {
    int port = 0;
    const int listener = listen_somewhere(port);
    pid_ = child([&] {
      const int fd = accept(listener, nullptr, nullptr);
      no_delay(fd);
      // The first byte says whether all are to come back, or none until one that is asked for.
      while (receive(fd)) {
        if (buffer_[0] == kTrip && !send(fd)) break;
        if (buffer_[0] == kLast && ::send(fd, buffer_.data(), 1, MSG_NOSIGNAL) != 1) break;
      }
    });
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    no_delay(fd_);
    close(listener);
  }
  ~Echo() {
    close(fd_);
    end(pid_);
  }
  Echo(const Echo&) = delete;
  bool trip() { return buffer_[0] = kTrip, send(fd_) && receive(fd_); }
  /// One way.
  bool pour() { return buffer_[0] = kPour, send(fd_); }
  /// What was poured has come.
  bool wait_for_all() {
    buffer_[0] = kLast;
    char byte = 0;
    return send(fd_) && recv(fd_, &byte, 1, 0) == 1;
  }

 private:
  static constexpr char kTrip = 0, kPour = 1, kLast = 2;
  static void no_delay(int fd) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  bool send(int fd) {
    for (size_t at = 0; at < buffer_.size();) {
      const ssize_t n = ::send(fd, buffer_.data() + at, buffer_.size() - at, MSG_NOSIGNAL);
      if (n <= 0) return false;
      at += static_cast<size_t>(n);
    }
    return true;
  }
  bool receive(int fd) {
    for (size_t at = 0; at < buffer_.size();) {
      const ssize_t n = recv(fd, buffer_.data() + at, buffer_.size() - at, 0);
      if (n <= 0) return false;
      at += static_cast<size_t>(n);
    }
    return true;
  }
  std::vector<char> buffer_;
  pid_t pid_ = 0;
  int fd_ = -1;
};

/// An actor in a process of its own that echoes strings, by CAF's own network. Make it before any thread starts.
class BaspEcho {
 public:
  BaspEcho() {
    int ends[2];
    if (pipe(ends) != 0) return;
    pid_ = child([&] {
      caf::actor_system_config config;
      config.load<caf::io::middleman>();
      caf::actor_system system(config);
      const caf::actor echo =
          system.spawn([]() -> caf::behavior { return {[](std::string& s) { return std::move(s); }}; });
      const auto port = system.middleman().publish(echo, 0, "127.0.0.1");
      const uint16_t number = port ? *port : 0;
      if (write(ends[1], &number, sizeof number) == sizeof number)
        while (true) pause();
    });
    if (read(ends[0], &port_, sizeof port_) != sizeof port_) port_ = 0;
    close(ends[0]), close(ends[1]);
  }
  ~BaspEcho() { end(pid_); }
  BaspEcho(const BaspEcho&) = delete;
  /// Microseconds of round trips, one value each; none: it does not answer.
  std::vector<double> trips(size_t bytes, int count) const {
    caf::actor_system_config config;
    config.load<caf::io::middleman>();
    caf::actor_system system(config);
    const auto echo = system.middleman().remote_actor("127.0.0.1", port_);
    std::vector<double> out;
    if (!echo) return out;
    caf::scoped_actor self(system);
    std::string text(bytes, 'x');
    for (int i = 0; i < count + 2; ++i) {
      const auto begin = Clock::now();
      bool well = false;
      self->request(*echo, caf::infinite, std::move(text))
          .receive([&](std::string& s) { text = std::move(s), well = true; }, [](const caf::error&) {});
      if (!well) return {};
      if (i >= 2) out.push_back(us_since(begin));
    }
    return out;
  }

 private:
  pid_t pid_ = 0;
  uint16_t port_ = 0;
};

/// Microseconds of one round trip within a step, a value for each step.
Result<std::vector<double>> trips_in_steps(Engine& engine, int64_t bytes, int trips, int steps) {
  Graph graph(engine.ops());
  Scope scope(graph);
  const Scope a = scope.device("/job:worker/task:0"), b = scope.device("/job:worker/task:1");
  Output x = a.op("Fill", {a.constant(Tensor::of<int32_t>({static_cast<int32_t>(bytes / 4)})), a.constant(1.f)});
  for (int i = 0; i < trips; ++i) x = a.op("Identity", {b.op("Identity", {x})});
  const Output last = a.op("Size", {x});
  TROUPE_RETURN_IF_ERROR(scope.status());
  Session session(engine, graph, {.passes = GraphPasses::none()});
  TROUPE_ASSIGN(const auto step, session.prepare({}, {last}, {}));
  std::vector<double> out;
  for (int i = 0; i < steps + 2; ++i) {
    const auto begin = Clock::now();
    TROUPE_RETURN_IF_ERROR(session.run(step, {}));
    if (i >= 2) out.push_back(us_since(begin) / trips);
  }
  return out;
}

Status measure_trips(int rounds) {
  const BaspEcho basp;
  const Workers workers(2);
  TROUPE_ASSIGN(const auto engine, workers.client());
  programs::print(
      "| a tensor there and back, us | plain TCP, two processes | two workers, within a step | ratio | two actors, "
      "BASP "
      "| Troupe / BASP |\n"
      "|---|---|---|---|---|---|\n");
  for (const int64_t kib : {4, 64, 1024, 16384}) {
    const int64_t bytes = kib << 10;
    const int trips = kib >= 16384 ? 4 : kib >= 1024 ? 10 : 50, steps = kib >= 1024 ? 5 : 20;
    std::vector<double> plain, ours, theirs;
    for (int round = 0; round < rounds; ++round) {
      Echo echo(static_cast<size_t>(bytes));
      for (int i = 0; i < steps; ++i) {
        const auto begin = Clock::now();
        for (int k = 0; k < trips; ++k) echo.trip();
        plain.push_back(us_since(begin) / trips);
      }
      TROUPE_ASSIGN(const auto some, trips_in_steps(*engine, bytes, trips, steps));
      ours.insert(ours.end(), some.begin(), some.end());
      const auto others = basp.trips(static_cast<size_t>(bytes), trips * steps);
      theirs.insert(theirs.end(), others.begin(), others.end());
    }
    if (theirs.empty()) return make_error(Code::kInternal, "no answer by BASP");
    const double p = quantile(plain, 0.5), o = quantile(ours, 0.5), b = quantile(theirs, 0.5);
    programs::print("| {} KiB | {:.1f} | {:.1f} | {:.2f} | {:.1f} | {:.2f} |\n", kib, p, o, o / p, b, o / b);
    TROUPE_RETURN_IF_ERROR(programs::flush());
  }
  return {};
}

/// Variables of 16 MiB on task 0, all of which task 1 gets in one step.
class Bulk {
 public:
  static constexpr int kTensors = 16, kMib = 16;
  static constexpr double kGb = double{kTensors} * (kMib << 20) / 1e9;
  static Result<std::unique_ptr<Bulk>> make(const Keys* keys) {
    auto out = std::unique_ptr<Bulk>(new Bulk(keys));
    TROUPE_ASSIGN(out->engine_, out->workers_.client());
    out->graph_ = std::make_unique<Graph>(out->engine_->ops());
    const Scope scope(*out->graph_), a = scope.device("/job:worker/task:0"), b = scope.device("/job:worker/task:1");
    std::vector<const Node*> init, targets;
    for (int i = 0; i < kTensors; ++i) {
      const Output v = a.op(
          "VarHandleOp", {},
          {{"dtype", DType::kFloat32}, {"shape", PartialShape{kMib << 18}}, {"shared_name", fmt::format("v{}", i)}});
      const Output value = a.op("Fill", {a.constant(Tensor::of<int32_t>({kMib << 18})), a.constant(1.f)});
      init.push_back(a.node("AssignVariableOp", {v, value}));
      targets.push_back(b.op("Size", {a.op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}})}).node);
    }
    TROUPE_RETURN_IF_ERROR(scope.status());
    out->session_ =
        std::make_unique<Session>(*out->engine_, *out->graph_, SessionOptions{.passes = GraphPasses::none()});
    TROUPE_RETURN_IF_ERROR(out->session_->run(std::vector<Feed>{}, {}, init));
    TROUPE_ASSIGN(out->step_, out->session_->prepare({}, {}, targets));
    TROUPE_RETURN_IF_ERROR(out->gb_per_second().status());
    return out;
  }
  Result<double> gb_per_second() {
    const auto begin = Clock::now();
    TROUPE_RETURN_IF_ERROR(session_->run(step_, {}));
    return kGb / us_since(begin) * 1e6;
  }

 private:
  explicit Bulk(const Keys* keys) : workers_(2, keys) {}
  const Workers workers_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Graph> graph_;
  std::unique_ptr<Session> session_;
  std::shared_ptr<Session::Prepared> step_;
};

Status measure_bulk(int rounds) {
  TROUPE_ASSIGN(const auto keys, Keys::make(2));
  // One pair of workers after the other: each has threads, and the processes of the next are forked before these.
  std::vector<double> tcp, plain, tls;
  Echo drain(16 << 20);
  for (const bool with_tls : {false, true}) {
    TROUPE_ASSIGN(const auto bulk, Bulk::make(with_tls ? keys.get() : nullptr));
    for (int round = 0; round < 3 * rounds; ++round) {
      const auto begin = Clock::now();
      for (int i = 0; i + 1 < Bulk::kTensors; ++i) drain.pour();
      drain.wait_for_all();
      tcp.push_back(Bulk::kGb / us_since(begin) * 1e6);
      TROUPE_ASSIGN(const double ours, bulk->gb_per_second());
      (with_tls ? tls : plain).push_back(ours);
    }
  }
  const double t = quantile(tcp, 0.5), p = quantile(plain, 0.5), s = quantile(tls, 0.5);
  programs::print(
      "\n| 256 MiB one way, in tensors of 16 MiB | GB/s | of plain TCP |\n|---|---|---|\n| plain TCP, two processes | "
      "{:.2f} | |\n| two workers | {:.2f} | {:.0f} % |\n| two workers, TLS 1.3 | {:.2f} | {:.0f} % |\n",
      t, p, 100 * p / t, s, 100 * s / t);
  return programs::flush();
}

Status measure_empty_steps(int most, int steps) {
  programs::print("\n| workers | empty step, median us | p99 us |\n|---|---|---|\n");
  for (int n = 1; n <= most; n *= 2) {
    const Workers workers(n);
    TROUPE_ASSIGN(const auto engine, workers.client());
    Graph graph(engine->ops());
    Scope scope(graph);
    std::vector<const Node*> targets;
    for (int i = 0; i < n; ++i) {
      const std::string name = "empty" + std::to_string(i);
      scope.device("/job:worker/task:" + std::to_string(i)).named(name).op("NoOp", {});
      targets.push_back(graph.find(name));
    }
    Session session(*engine, graph);
    TROUPE_ASSIGN(const auto step, session.prepare({}, {}, targets));
    std::vector<double> us;
    for (int i = 0; i < steps; ++i) {
      const auto begin = Clock::now();
      TROUPE_RETURN_IF_ERROR(session.run(step, {}));
      us.push_back(us_since(begin));
    }
    programs::print("| {} | {:.0f} | {:.0f} |\n", n, quantile(us, 0.5), quantile(us, 0.99));
    TROUPE_RETURN_IF_ERROR(programs::flush());
  }
  return {};
}

/// Processor time of a process so far, seconds.
double processor_time(pid_t pid) {
  std::ifstream in(fmt::format("/proc/{}/stat", pid));
  std::string text((std::istreambuf_iterator<char>(in)), {});
  std::istringstream rest(text.substr(std::min(text.size(), text.rfind(')') + 2)));
  std::string word;
  double ticks = 0;
  for (int i = 3; rest >> word && i <= 15; ++i)
    if (i >= 14) ticks += std::stod(word);
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

Status measure_loss(int rounds) {
  std::vector<double> killed, frozen, back;
  double idle = 0;
  constexpr double kIdleSeconds = 5;
  for (int round = 0; round < rounds; ++round) {
    for (const int signal : {SIGKILL, SIGSTOP}) {
      Workers workers(2);
      TROUPE_ASSIGN(const auto engine, workers.client());
      Graph graph(engine->ops());
      Scope scope(graph);
      const Scope on = scope.device("/job:worker/task:1");
      const Output queue = on.op("FIFOQueueV2", {},
                                 {{"component_types", std::vector<DType>{DType::kFloat32}}, {"capacity", int64_t{1}}});
      const Output waits = on.op("QueueDequeueV2", {queue}, {{"component_types", std::vector<DType>{DType::kFloat32}}});
      const Output quick = on.op("Neg", {on.constant(1.f)});
      TROUPE_RETURN_IF_ERROR(scope.status());
      Session session(*engine, graph);
      TROUPE_RETURN_IF_ERROR(session.run({quick}));
      if (round == 0 && signal == SIGKILL) {
        const double before = processor_time(workers.pids[0]);
        std::this_thread::sleep_for(std::chrono::duration<double>(kIdleSeconds));
        idle = (processor_time(workers.pids[0]) - before) / kIdleSeconds;
      }
      auto waiting = session.run_future({}, {waits});
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      auto begin = Clock::now();
      kill(workers.pids[1], signal);
      if (waiting.get().ok()) return make_error(Code::kInternal, "a step that lost its worker ended well");
      (signal == SIGKILL ? killed : frozen).push_back(us_since(begin) / 1e3);
      if (signal != SIGKILL) continue;
      waitpid(workers.pids[1], nullptr, 0);
      begin = Clock::now();
      workers.pids[1] = workers.start(1);
      while (!session.run({quick}).ok()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      back.push_back(us_since(begin) / 1e3);
    }
  }
  programs::print("\n| loss and idleness | median | worst |\n|---|---|---|\n");
  programs::print("| kill -9 to the error of a step that waits, ms | {:.1f} | {:.1f} |\n", quantile(killed, 0.5),
                  quantile(killed, 1));
  programs::print("| SIGSTOP to that, ms | {:.0f} | {:.0f} |\n", quantile(frozen, 0.5), quantile(frozen, 1));
  programs::print("| start of a new process to the first step that it is in, ms | {:.0f} | {:.0f} |\n",
                  quantile(back, 0.5), quantile(back, 1));
  programs::print("| an idle worker with a client, of a core | {:.2f} % | |\n", 100 * idle);
  return programs::flush();
}

/// Resident memory of a process, MiB.
double resident_mib(pid_t pid) {
  std::ifstream in(fmt::format("/proc/{}/statm", pid));
  double pages = 0;
  in >> pages >> pages;
  return pages * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

/// One step makes 10 GiB on task 0 for task 1.
struct TenGib {
  static Result<std::unique_ptr<TenGib>> make() {
    constexpr int kTensors = 640, kMib = 16;
    auto out = std::make_unique<TenGib>();
    TROUPE_ASSIGN(out->engine, out->workers.client());
    out->graph = std::make_unique<Graph>(out->engine->ops());
    const Scope scope(*out->graph), a = scope.device("/job:worker/task:0"), b = scope.device("/job:worker/task:1");
    const Output x = scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape::scalar()}});
    const Output shape = a.constant(Tensor::of<int32_t>({kMib << 18}));
    std::vector<const Node*> targets;
    for (int i = 0; i < kTensors; ++i) {
      const Output made = a.op("Fill", {shape, a.op("Add", {x, a.constant(static_cast<float>(i))})});
      targets.push_back(b.op("Size", {made}).node);
    }
    TROUPE_RETURN_IF_ERROR(scope.status());
    out->session = std::make_unique<Session>(*out->engine, *out->graph, SessionOptions{.passes = GraphPasses::none()});
    TROUPE_ASSIGN(out->step, out->session->prepare({x}, {}, targets));
    return out;
  }
  Workers workers = Workers(2);
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Graph> graph;
  std::unique_ptr<Session> session;
  std::shared_ptr<Session::Prepared> step;
};

/// How fast that goes, and how far task 0 grows when task 1 is stopped from the first step on, until it gives it up.
Status measure_stopped_peer() {
  double seconds = 0, after = 0;
  {
    TROUPE_ASSIGN(const auto t, TenGib::make());
    TROUPE_RETURN_IF_ERROR(t->session->run(t->step, {Tensor::scalar(1.f)}));
    const auto begin = Clock::now();
    TROUPE_RETURN_IF_ERROR(t->session->run(t->step, {Tensor::scalar(1.f)}));
    seconds = us_since(begin) / 1e6;
    after = resident_mib(t->workers.pids[0]);
  }
  TROUPE_ASSIGN(const auto t, TenGib::make());
  const double before = resident_mib(t->workers.pids[0]);
  double most = before;
  kill(t->workers.pids[1], SIGSTOP);
  const auto begin = Clock::now();
  std::promise<Status> ended;
  t->session->run_async(t->step, {Tensor::scalar(1.f)}, [&](RunResult result) { ended.set_value(result.status()); });
  auto end = ended.get_future();
  while (end.wait_for(std::chrono::milliseconds(2)) != std::future_status::ready)
    most = std::max(most, resident_mib(t->workers.pids[0]));
  const double given_up = us_since(begin) / 1e6;
  if (end.get().ok()) return make_error(Code::kInternal, "a step with a stopped worker ended well");
  programs::print(
      "\n| 10 GiB in one step from worker to worker | |\n|---|---|\n| that takes it: GiB/s | {:.2f} |\n"
      "| that takes it: all memory of the sender after it, MiB | {:.0f} |\n"
      "| that is stopped: the sender grows by, MiB | {:.0f} |\n| and gives it up after, s | {:.1f} |\n",
      10 / seconds, after, most - before, given_up);
  return programs::flush();
}

/// 32 rows of an embedding of 1 GB on a worker, gathered by another and updated, beside those of a small one.
Status measure_rows(int rounds) {
  const Workers workers(2);
  TROUPE_ASSIGN(const auto engine, workers.client());
  constexpr int64_t kWidth = 64;
  std::vector<std::vector<double>> us(2);
  const int64_t rows[] = {4096, 4 << 20};
  Graph graph(engine->ops());
  Scope scope(graph);
  const Scope server = scope.device("/job:worker/task:0"), user = scope.device("/job:worker/task:1");
  std::vector<std::shared_ptr<Session::Prepared>> steps;
  Session session(*engine, graph);
  for (const int64_t n : rows) {
    const Output table = server.op("VarHandleOp", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{n, kWidth}}});
    const Output zeros = server.op(
        "Fill", {server.constant(Tensor::of<int32_t>({static_cast<int32_t>(n), kWidth})), server.constant(0.f)});
    const Node* const init = server.node("AssignVariableOp", {table, zeros});
    std::vector<int32_t> picked;
    for (int32_t i = 0; i < 32; ++i) picked.push_back(static_cast<int32_t>(n / 32) * i + 7);
    const Output indices = user.constant(Tensor::of<int32_t>(std::span<const int32_t>(picked)));
    const Output gathered =
        server.op("ResourceGather", {table, indices}, {{"dtype", DType::kFloat32}, {"Tindices", DType::kInt32}});
    const Output changed = user.op("Mul", {gathered, user.constant(0.5f)});
    const Node* const update = server.node("ResourceScatterAdd", {table, indices, changed});
    TROUPE_RETURN_IF_ERROR(scope.status());
    TROUPE_RETURN_IF_ERROR(session.run(std::vector<Feed>{}, {}, {init}));
    TROUPE_ASSIGN(auto step, session.prepare({}, {}, {update}));
    steps.push_back(std::move(step));
  }
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < steps.size(); ++i)
      for (int k = 0; k < 200; ++k) {
        const auto begin = Clock::now();
        TROUPE_RETURN_IF_ERROR(session.run(steps[i], {}));
        us[i].push_back(us_since(begin));
      }
  const double small = quantile(us[0], 0.5), large = quantile(us[1], 0.5);
  programs::print(
      "\n| 32 rows gathered from another worker, changed and added there, us | median |\n|---|---|\n"
      "| of an embedding of 1 MiB | {:.0f} |\n| of 1 GiB | {:.0f} |\n| ratio | {:.2f} |\n",
      small, large, large / small);
  return programs::flush();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures steps over worker processes on loopback, beside plain TCP; prints Markdown tables.");
  int rounds = 5, most = 8, steps = 1000;
  std::string only;
  app.add_option("--rounds", rounds, "Rounds of what is measured in turns")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--workers", most, "Empty steps of 1, 2, 4, ... workers, as many at most")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--steps", steps, "Empty steps of each")->check(CLI::Range(1, 1'000'000))->capture_default_str();
  app.add_option("--only", only, "One table only")
      ->check(CLI::IsMember({"trips", "bulk", "steps", "loss", "stopped", "rows"}));
  return programs::run(app, argc, argv, [&]() -> Status {
    const auto asked = [&](const char* table) { return only.empty() || only == table; };
    if (asked("trips")) TROUPE_RETURN_IF_ERROR(measure_trips(rounds));
    if (asked("bulk")) TROUPE_RETURN_IF_ERROR(measure_bulk(rounds));
    if (asked("steps")) TROUPE_RETURN_IF_ERROR(measure_empty_steps(most, steps));
    if (asked("loss")) TROUPE_RETURN_IF_ERROR(measure_loss(std::min(rounds, 5)));
    if (asked("stopped")) TROUPE_RETURN_IF_ERROR(measure_stopped_peer());
    if (asked("rows")) TROUPE_RETURN_IF_ERROR(measure_rows(rounds));
    return {};
  });
}
