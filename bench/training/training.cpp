// SPDX-License-Identifier: Apache-2.0
// Training steps beside PyTorch and TensorFlow: images a second, two replicas in each mode, resident memory. Each
// measurement is a process of its own; ours and the peers' take turns. Prints Markdown tables.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <tuple>

#include "bench/training/networks.h"
#include "bench/turns.h"
#include "programs/program.h"

namespace {

using namespace troupe::bench;

struct Settings {
  std::string self, troupe, python = "python3", peers = peers_folder("training");
  int repeats = 5, steps = 0, memory_steps = 10'000;
};

std::string getenv_or_empty(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

int steps_for(const Settings& s, const std::string& net) {
  if (s.steps > 0) return s.steps;
  return net == "mlp" ? 2000 : net == "lenet" ? 600 : 60;
}

std::string ours(const Settings& s, const std::string& net, int threads, int replicas, int steps) {
  return fmt::format("'{}' --one {} --threads {} --replicas {} --steps {}", s.self, net, threads, replicas, steps);
}

std::string peer(const Settings& s, const std::string& which, const std::string& net, int threads, int steps) {
  return fmt::format("'{}' '{}/{}.py' {} {} {}", s.python, s.peers, which, net, threads, steps);
}

/// Two of the same at once, which know nothing of each other: what the machine gives two replicas at most.
std::string twice(const std::string& command) { return fmt::format("{0} & {0} & wait", command); }
/// Images a second of both, each of which printed `numbers` numbers.
double both(const std::vector<double>& printed, size_t numbers) { return printed[0] + printed[numbers]; }
constexpr size_t kPrinted = 5;

void speed_table(const Settings& s) {
  std::printf(
      "| training step, batch 64, images/s | threads | Troupe | PyTorch | TensorFlow | Troupe / faster peer | at least "
      "1.0 |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const char* net : {"mlp", "lenet", "convnet"})
    for (int threads : {1, 2}) {
      const int steps = steps_for(s, net);
      const auto numbers = rounds(s.repeats, 1,
                                  {ours(s, net, threads, 1, steps), peer(s, "peer_pytorch", net, threads, steps),
                                   peer(s, "peer_tensorflow", net, threads, steps)});
      std::printf("| %s | %d | %s | %s | %s %s\n", net, threads, show(numbers[0][0]).c_str(),
                  show(numbers[1][0]).c_str(), show(numbers[2][0]).c_str(),
                  verdict(numbers[0][0], numbers[1][0], numbers[2][0]).c_str());
      std::fflush(stdout);
    }
}

void replica_table(const Settings& s) {
  std::printf(
      "\n| two asynchronous replicas, one thread each, images/s | one replica | two | ratio | at least 1.7 "
      "|\n|---|---|---|---|---|\n");
  for (const char* net : {"mlp", "lenet", "convnet"}) {
    const int steps = steps_for(s, net);
    const auto numbers = rounds(s.repeats, 1, {ours(s, net, 1, 1, steps), ours(s, net, 1, 2, steps)});
    const double one = numbers[0][0], two = numbers[1][0];
    std::printf("| %s | %s | %s %s\n", net, show(one).c_str(), show(two).c_str(), verdict(two, one, 0, 1.7).c_str());
    std::fflush(stdout);
  }
}

void modes_table(const Settings& s) {
  std::printf(
      "\n| two replicas by the trainer, one thread each, images/s | one replica | two programs apart | two replicas | "
      "of "
      "two apart | of one | at least 1.8 |\n|---|---|---|---|---|---|---|\n");
  const int steps = steps_for(s, "lenet");
  const auto command = [&](const char* mode, int replicas) {
    return ours(s, "lenet", 1, replicas, steps) + fmt::format(" --mode {}", mode);
  };
  std::vector<std::string> commands = {command("sync", 1), twice(command("sync", 1))};
  for (const char* mode : kModes) commands.push_back(command(mode, 2));
  const auto numbers = rounds(s.repeats, 2 * kPrinted, commands);
  const double one = numbers[0][0], apart = both(numbers[1], kPrinted);
  for (size_t i = 0; i < std::size(kModes); ++i) {
    const double two = numbers[i + 2][0];
    std::printf("| lenet, %s | %s | %s | %s | %.2f | %s\n", kModes[i], show(one).c_str(), show(apart).c_str(),
                show(two).c_str(), two / apart, verdict(two, one, 0, 1.8).c_str());
  }
  std::fflush(stdout);
}

void workers_table(const Settings& s) {
  std::printf(
      "\n| replicas on worker processes, one thread each, images/s | one | busy cores | two clusters apart | two "
      "replicas | busy cores | of two apart | of one | at least | PyTorch DDP (gloo): one | two | ratio | Troupe's two "
      "/ "
      "PyTorch's | at least 1.0 |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  const auto ratio = [](double a, double b) { return b > 0 ? fmt::format("{:.2f}", a / b) : std::string("-"); };
  for (const char* net : {"lenet", "convnet"}) {
    const int steps = steps_for(s, net);
    const auto workers = [&](const char* mode, int n) {
      // What is asynchronous asks for variables at any time: they are with a server, as there is one to any such
      // training.
      const int servers = mode == std::string("async") ? 1 : 0;
      // Tasks share the cores: one of two has a thread.
      return fmt::format("'{}' launch -n 2 --servers {} -- ", s.troupe, servers) + ours(s, net, 1, n, steps) +
             fmt::format(" --mode {} --workers", mode);
    };
    const auto ddp = [&](int n) { return peer(s, "peer_ddp", net, n, steps); };
    std::vector<std::string> commands = {ddp(1), ddp(2)};
    for (const char* mode : {"sync", "async"})
      commands.insert(commands.end(), {workers(mode, 1), twice(workers(mode, 1)), workers(mode, 2)});
    const auto numbers = rounds(s.repeats, 2 * kPrinted, commands);
    const double theirs = numbers[0][0], their_two = numbers[1][0];
    for (const auto& [mode, at, wanted] : {std::tuple("sync", 2, "1.7"), std::tuple("async", 5, "1.9")}) {
      const auto i = static_cast<size_t>(at);
      const double one = numbers[i][0], apart = both(numbers[i + 1], kPrinted), two = numbers[i + 2][0];
      std::printf("| %s, %s | %s | %.2f | %s | %s | %.2f | %s | %s | %s | %s | %s | %s | %s\n", net, mode,
                  show(one).c_str(), numbers[i][4], show(apart).c_str(), show(two).c_str(), numbers[i + 2][4],
                  ratio(two, apart).c_str(), ratio(two, one).c_str(), wanted, show(theirs).c_str(),
                  show(their_two).c_str(), ratio(their_two, theirs).c_str(), verdict(two, their_two, 0).c_str());
      std::fflush(stdout);
    }
  }
}

void memory_table(const Settings& s) {
  std::printf("\n| lenet, resident MiB | after 100 steps | after %d | peak |\n|---|---|---|---|\n", s.memory_steps);
  for (auto& [name, command] : {std::pair<std::string, std::string>("Troupe", ours(s, "lenet", 1, 1, s.memory_steps)),
                                {"PyTorch", peer(s, "peer_pytorch", "lenet", 1, s.memory_steps)},
                                {"TensorFlow", peer(s, "peer_tensorflow", "lenet", 1, s.memory_steps)}}) {
    if (const auto m = measure(command); m.size() >= 4)
      std::printf("| %s | %.1f | %.1f | %.1f |\n", name.c_str(), m[1], m[2], m[3]);
    else std::printf("| %s | no numbers | | |\n", name.c_str());
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures training steps beside PyTorch and TensorFlow; prints Markdown tables.");
  Settings s;
  s.self = argv[0];
  s.troupe = (std::filesystem::path(argv[0]).parent_path() / "../../cli/troupe").string();
  std::string one, only, mode;
  int threads = 1, replicas = 1;
  bool workers = false;
  app.add_option("--python", s.python, "Python that may have PyTorch and TensorFlow")->capture_default_str();
  app.add_option("--peers", s.peers, "Folder of the peers' scripts")->capture_default_str();
  app.add_option("--repeats", s.repeats, "Rounds; medians are shown")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--steps", s.steps, "Steps a measurement; 0 chooses by network")
      ->capture_default_str()
      ->check(CLI::Range(0, 100'000'000));
  app.add_option("--memory-steps", s.memory_steps, "Steps of the memory table")
      ->capture_default_str()
      ->check(CLI::Range(101, 100'000'000));
  app.add_option("--only", only, "One table only")
      ->check(CLI::IsMember({"speed", "replicas", "modes", "workers", "memory"}));
  app.add_option("--one", one, "Measure one network in this process and print the numbers")
      ->check(CLI::IsMember({"mlp", "lenet", "convnet"}));
  app.add_option("--threads", threads, "With --one: threads a device")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--replicas", replicas, "With --one: asynchronous replicas")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--mode", mode, "With --one: replicas of the trainer in this mode, one thread each")
      ->check(CLI::IsMember(std::vector<std::string>(std::begin(kModes), std::end(kModes))));
  app.add_flag("--workers", workers, "With --mode: on the tasks of the cluster that TROUPE_CLUSTER tells");
  app.add_option("--troupe", s.troupe, "The program troupe, which starts worker processes")->capture_default_str();
  if (const auto status = programs::begin(app, argc, argv)) return *status;
  if (!one.empty()) {
    const int steps = steps_for(s, one);
    auto r = mode.empty() ? train(one, threads, replicas, steps)
                          : train_replicas(one, mode, replicas, steps,
                                           workers ? getenv_or_empty("TROUPE_CLUSTER") : std::string());
    if (!r.ok()) {
      std::fprintf(stderr, "bench_training: %s\n", r.error().str().c_str());
      return programs::kFailed;
    }
    std::printf("%f %f %f %f %f\n", r->images_per_second, r->resident_100, r->resident_last, r->peak, r->busy_cores);
    return programs::end({});
  }
  if (only.empty() || only == "speed") speed_table(s);
  if (only.empty() || only == "replicas") replica_table(s);
  if (only.empty() || only == "modes") modes_table(s);
  if (only.empty() || only == "workers") workers_table(s);
  if (only.empty() || only == "memory") memory_table(s);
  return programs::end({});
}
