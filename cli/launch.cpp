// SPDX-License-Identifier: Apache-2.0
// The subcommand launch: a cluster of processes on this machine for as long as one program runs.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "base/system_code.h"
#include "cli/child.h"
#include "cli/commands.h"
#include "cli/devices.h"
#include "net/cluster_spec.h"
#include "programs/cluster_flags.h"
#include "programs/program.h"

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

/// A worker that dies sooner after its start waits for the rest of this before it is started again.
constexpr auto kLeastLife = std::chrono::seconds(1);
/// How the line begins that a worker prints when it listens.
constexpr std::string_view kTask = "/job:";
/// Of what workers print, before something else has its turn.
constexpr size_t kMostTaken = size_t{1} << 20;
/// How long workers may take to end when they are asked to.
constexpr auto kLongestEnd = std::chrono::seconds(10);

struct LaunchArguments {
  int workers = 2, servers = 0;
  std::string devices = "cpu=1";
  int heartbeat = 200, silence = 2000;
  bool bind = false, restart = false;
  double kill = 0;  // seconds; 0: never
  std::vector<std::string> command;
};

/// The cores that this process may run on.
std::vector<int> own_cores() {
  cpu_set_t set;
  std::vector<int> out;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &set)) out.push_back(core);
  if (out.empty())
    for (int core = 0; core < std::max(1, static_cast<int>(std::thread::hardware_concurrency())); ++core)
      out.push_back(core);
  return out;
}

/// Keeps the thread, and so the processes that it starts, on some cores as long as it lives.
class OnCores {
 public:
  explicit OnCores(const std::vector<int>& cores) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int core : cores) CPU_SET(core, &set);
    changed_ = sched_getaffinity(0, sizeof before_, &before_) == 0 && sched_setaffinity(0, sizeof set, &set) == 0;
  }
  ~OnCores() {
    if (changed_) sched_setaffinity(0, sizeof before_, &before_);
  }
  OnCores(const OnCores&) = delete;

 private:
  cpu_set_t before_ = {};
  bool changed_ = false;
};

/// A folder that only its owner may read, removed at its end.
class Folder {
 public:
  static Result<std::unique_ptr<Folder>> make() {
    std::error_code none;
    const auto base = std::filesystem::temp_directory_path(none);
    std::string name = ((none ? "/tmp" : base) / "troupe-XXXXXX").string();
    if (!mkdtemp(name.data()))
      return make_error(code_of_system_error(errno), "cannot make the folder {}: {}", name, std::strerror(errno));
    return std::make_unique<Folder>(name);
  }
  explicit Folder(std::string path) : path_(std::move(path)) {}
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  const std::string path_;
};

Result<net::ClusterSpec> make_spec(const LaunchArguments& o, const Folder& folder) {
  net::ClusterSpec::Jobs jobs;
  for (const auto& [job, count] : {std::pair("ps", o.servers), std::pair("worker", o.workers)})
    for (int i = 0; i < count; ++i) {
      auto address = net::Address::parse("unix:" + folder.file(fmt::format("{}-{}", job, i)));
      if (!address.ok()) return invalid_argument("{}; TMPDIR can name another folder", address.error().message);
      jobs[job][i] = std::move(*address);
    }
  return net::ClusterSpec::make("launch", std::move(jobs));
}

class Launch {
 public:
  Launch(const LaunchArguments& options, const Folder& folder, net::ClusterSpec spec)
      : options_(options), spec_(std::move(spec)), file_(folder.file("cluster.json")),
        listens_(" listens at unix:" + folder.file("")) {}
  ~Launch() {
    end_workers();
    take_output();
    programs::print_text(printed_);
    if (command_ > 0) kill(command_, SIGKILL), waitpid(command_, nullptr, 0);
    for (const int end : out_)
      if (end >= 0) close(end);
  }
  Launch(const Launch&) = delete;

  Status run() {
    std::ofstream list(file_);
    if (!(list << spec_.to_json() << std::flush))
      return make_error(code_of_system_error(errno), "cannot write '{}': {}", file_, std::strerror(errno));
    // Its reading end alone: workers wait where they print more than is read.
    if (pipe2(out_, O_CLOEXEC) != 0 || fcntl(out_[0], F_SETFL, O_NONBLOCK) != 0)
      return make_error(code_of_system_error(errno), "pipe: {}", std::strerror(errno));
    for (const net::TaskId& task : spec_.tasks()) workers_.push_back({task});
    for (Worker& worker : workers_) TROUPE_RETURN_IF_ERROR(start(worker));
    while (listening_ < workers_.size()) TROUPE_RETURN_IF_ERROR(turn());
    ChildOptions command;
    command.program = options_.command[0];
    command.arguments = options_.command;
    command.environment = environment_with("TROUPE_CLUSTER", spec_.to_json());
    command.dies_with_parent = SIGTERM;
    TROUPE_ASSIGN(command_, start_child(command, signals_.before()));
    if (options_.kill > 0)
      kill_at_ =
          Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.kill));
    while (command_ > 0) TROUPE_RETURN_IF_ERROR(turn());
    programs::set_status(status_);
    return {};
  }

 private:
  struct Worker {
    net::TaskId task;
    pid_t pid = -1;
    Clock::time_point started = {};
    bool due = false;  // to be started again
  };

  Status start(Worker& worker) {
    ChildOptions child;
    child.program = "/proc/self/exe";
    const size_t tasks = workers_.size(), place = static_cast<size_t>(&worker - workers_.data());
    const size_t cores = std::max<size_t>(1, cores_.size() / tasks);
    std::vector<int> bound;
    for (size_t i = 0; i < cores; ++i) bound.push_back(cores_[(place * cores + i) % cores_.size()]);
    std::optional<OnCores> on_cores;
    if (options_.bind) on_cores.emplace(bound);
    child.arguments = {"troupe",      "worker",
                       "--cluster",   file_,
                       "--job",       worker.task.job,
                       "--task",      std::to_string(worker.task.task),
                       "--devices",   options_.devices,
                       "--cores",     std::to_string(cores),
                       "--heartbeat", std::to_string(options_.heartbeat),
                       "--silence",   std::to_string(options_.silence),
                       "--data",      "/",  // its client is who started it
                       "--quiet"};
    for (char** at = environ; *at; ++at) child.environment.emplace_back(*at);
    child.out = out_[1];
    child.apart = true;
    worker.started = Clock::now();
    worker.due = false;
    TROUPE_ASSIGN(worker.pid, start_child(child, signals_.before()));
    return {};
  }

  /// Waits for something to happen and sees to it. Errors end the launch.
  Status turn() {
    auto next = kill_at_;
    for (const Worker& worker : workers_)
      if (worker.due) next = std::min(next, worker.started + kLeastLife);
    int wait_ms = -1;
    if (next != Clock::time_point::max())
      wait_ms = static_cast<int>(
          std::clamp<int64_t>(std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count(), 0, 1'000'000));
    pollfd ready[] = {{signals_.fd(), POLLIN, 0}, {out_[0], POLLIN, 0}};
    if (poll(ready, 2, wait_ms) < 0 && errno != EINTR)
      return make_error(code_of_system_error(errno), "poll: {}", std::strerror(errno));
    take_output();
    for (const auto& event : signals_.take()) {
      if (command_ <= 0)
        return make_error(Code::kCancelled, "interrupted by {} before {} began", strsignal(event.number),
                          options_.command[0]);
      if (!event.from_terminal) kill(command_, event.number);
    }
    TROUPE_RETURN_IF_ERROR(reap());
    if (Clock::now() >= kill_at_) {
      kill_at_ = Clock::time_point::max();
      if (workers_.back().pid > 0) kill(workers_.back().pid, SIGKILL);
    }
    for (Worker& worker : workers_)
      if (worker.due && Clock::now() >= worker.started + kLeastLife) TROUPE_RETURN_IF_ERROR(start(worker));
    return {};
  }

  /// Each worker prints a line when it listens. All else comes from graphs, and goes to this program's output.
  void take_output() {
    char piece[4096];
    size_t taken = 0;
    for (ssize_t n; taken < kMostTaken && (n = read(out_[0], piece, sizeof piece)) > 0; taken += static_cast<size_t>(n))
      printed_.append(piece, static_cast<size_t>(n));
    size_t begin = 0;
    for (size_t end; (end = printed_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const std::string line = printed_.substr(begin, end + 1 - begin);
      if (line.starts_with(kTask) && line.find(listens_) != std::string::npos) ++listening_;
      else programs::print_text(line);
    }
    printed_.erase(0, begin);
    if (printed_.empty() || printed_.starts_with(kTask)) return;
    programs::print_text(std::exchange(printed_, {}));
    std::fflush(stdout);
  }

  Status reap() {
    int how = 0;
    for (pid_t pid; (pid = waitpid(-1, &how, WNOHANG)) > 0;) {
      if (pid == command_) {
        command_ = -1;
        status_ = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
        continue;
      }
      const auto worker = std::ranges::find(workers_, pid, &Worker::pid);
      if (worker == workers_.end()) continue;  // one of those that the program left behind
      worker->pid = -1;
      const std::string what = fmt::format("{} (process {}) ended with {}", worker->task.str(), pid, how_it_ended(how));
      if (command_ <= 0 && listening_ < workers_.size())
        return make_error(Code::kUnavailable, "{} before it began", what);
      worker->due = options_.restart;
      fmt::print(stderr, "troupe: {}{}\n", what, options_.restart ? "; it is started again" : "");
    }
    return {};
  }

  void end_workers() {
    // One that does not listen yet has nothing to end, and would say that a signal interrupted it.
    const int how = listening_ < workers_.size() ? SIGKILL : SIGTERM;
    for (const Worker& worker : workers_)
      if (worker.pid > 0) kill(worker.pid, how), kill(worker.pid, SIGCONT);
    const auto until = Clock::now() + kLongestEnd;
    for (;;) {
      for (Worker& worker : workers_)
        if (worker.pid > 0 && waitpid(worker.pid, nullptr, WNOHANG) == worker.pid) worker.pid = -1;
      if (std::ranges::all_of(workers_, [](const Worker& w) { return w.pid <= 0; })) return;
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
      pollfd ready[] = {{signals_.fd(), POLLIN, 0}, {out_[0], POLLIN, 0}};
      const bool in_time = left > 0 && poll(ready, 2, static_cast<int>(left)) >= 0;
      take_output();
      if (in_time && signals_.take().empty()) continue;
      for (const Worker& worker : workers_)  // it takes too long, or a signal says so
        if (worker.pid > 0) kill(worker.pid, SIGKILL), waitpid(worker.pid, nullptr, 0);
      return;
    }
  }

  const LaunchArguments& options_;
  const net::ClusterSpec spec_;
  const std::string file_;
  const std::string listens_;  // what a worker says then
  SignalEvents signals_;
  std::vector<Worker> workers_;
  const std::vector<int> cores_ = own_cores();
  int out_[2] = {-1, -1};  // what workers print
  std::string printed_;    // of that, a line whose end has not come
  size_t listening_ = 0;
  Clock::time_point kill_at_ = Clock::time_point::max();
  pid_t command_ = -1;
  int status_ = programs::kDone;
};

Status run(const LaunchArguments& o) {
  unsetenv("TROUPE_TLS");  // of another cluster: this one's folder is its protection
  TROUPE_ASSIGN(const auto folder, Folder::make());
  TROUPE_ASSIGN(auto spec, make_spec(o, *folder));
  return Launch(o, *folder, std::move(spec)).run();
}

}  // namespace

void add_launch(CLI::App& app, Job& job) {
  auto o = std::make_shared<LaunchArguments>();
  CLI::App& launch = *app.add_subcommand(
      "launch", "Runs a program with a cluster of processes on this machine, which it finds in TROUPE_CLUSTER");
  launch.add_option("-n,--workers", o->workers, "Tasks of the job worker")
      ->check(CLI::Range(1, net::kMostTasks))
      ->capture_default_str();
  launch.add_option("--servers", o->servers, "Tasks of the job ps")
      ->check(CLI::Range(0, net::kMostTasks - 1))
      ->capture_default_str();
  launch.add_option("--devices", o->devices, "cpu=N, gpu=N, or both with +: of each task; the tasks share the cores")
      ->capture_default_str();
  launch.add_option("--heartbeat", o->heartbeat, "Milliseconds after which a task asks a silent peer")
      ->check(CLI::Range(1, 3'600'000))
      ->capture_default_str();
  launch.add_option("--silence", o->silence, "Milliseconds of silence after which a peer is lost to a task")
      ->check(CLI::Range(2, 7'200'000))
      ->capture_default_str();
  launch.add_flag("--bind", o->bind,
                  "Bind each task to its share of the cores, which makes it faster if it has them alone");
  launch.add_flag("--restart", o->restart, "Start a task again that has ended [say so and go on]");
  launch.add_option("--kill", o->kill, "Kill the last task with signal 9 after so many seconds, to see what follows")
      ->check(CLI::PositiveNumber)
      ->check(CLI::Range(0.0, 1e6));
  launch.add_option("CMD", o->command, "The program and its arguments, behind --")->required();
  launch.footer(
      "Exit status: that of CMD, or 128 and the number of the signal that ended it; 1 failed, or interrupted "
      "before\nCMD began; 2 a wrong command line.");
  launch.callback([o, &job] {
    if (const auto devices = read_own_devices(o->devices); !devices.ok())
      throw CLI::ValidationError("launch", devices.error().message);
    if (o->workers + o->servers > net::kMostTasks)
      throw CLI::ValidationError("launch", fmt::format("{} workers and {} servers are more than {} tasks", o->workers,
                                                       o->servers, net::kMostTasks));
    if (o->silence < 2 * o->heartbeat)
      throw CLI::ValidationError(
          "launch", fmt::format("--silence {} must be at least twice --heartbeat {}", o->silence, o->heartbeat));
    job = [o] { return run(*o); };
  });
}

}  // namespace troupe
