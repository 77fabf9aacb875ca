// SPDX-License-Identifier: Apache-2.0
// Weak scaling of the ring all-reduce on simulated devices: does it keep to the ring's bound, 2 (n-1)/n of the bytes
// over each link, from two devices to a thousand? And can two cores plan and simulate it? Prints a Markdown table.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <ctime>

#include "bench/turns.h"
#include "programs/program.h"
#include "troupe/collectives.h"
#include "troupe/session.h"

namespace {

using namespace troupe;

struct Settings {
  std::vector<int> devices = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};
  double megabytes = 100;
  // Links about as of 100-gigabit Ethernet, between accelerators.
  LinkRates link{.bandwidth = 10e9, .latency_ns = 100};
  DeviceRates rates{.flops = 100e12, .memory_bandwidth = 4e12, .launch_ns = 50};
};

struct Figures {
  int nodes = 0;
  double plan_seconds = 0, run_seconds = 0;
  double virtual_ms = 0;
};

Result<Figures> measure_ring(const Settings& settings, int n) {
  // Of the processor, so that a busy machine does not show.
  const auto seconds = [](std::clock_t since) { return static_cast<double>(std::clock() - since) / CLOCKS_PER_SEC; };
  EngineOptions options;
  options.cpu_threads = {1};
  options.sim.devices.assign(static_cast<size_t>(n), settings.rates);
  options.sim.link = settings.link;
  options.sim.compute = false;
  TROUPE_ASSIGN(auto engine, Engine::create(options));
  Graph graph(engine->ops());
  const Scope scope(graph);
  const auto elements = static_cast<int64_t>(settings.megabytes * 1e6 / 4);
  std::vector<std::string> names;
  std::vector<Output> tensors;
  std::vector<const Node*> before, after;
  const std::clock_t begun = std::clock();
  for (int i = 0; i < n; ++i) {
    names.push_back(fmt::format("/sim:{}", i));
    const Scope there = scope.device(names.back());
    tensors.push_back(
        there.op("RandomUniform", {there.constant(Tensor::of<int64_t>({elements}))}, {{"dtype", DType::kFloat32}}));
    before.push_back(tensors.back().node);
  }
  for (const Output& sum : nn::all_reduce(scope, names, tensors)) after.push_back(sum.node);
  TROUPE_RETURN_IF_ERROR(scope.status());
  SessionOptions session_options;
  session_options.default_device = names[0];
  Session session(*engine, graph, session_options);
  // One step makes the tensors, one reduces them too.
  TROUPE_ASSIGN(const auto making, session.prepare({}, {}, before));
  TROUPE_ASSIGN(const auto reducing, session.prepare({}, {}, after));
  Figures figures;
  figures.nodes = graph.size();
  figures.plan_seconds = seconds(begun);
  const auto run = [&](const std::shared_ptr<Session::Prepared>& step) -> Result<double> {
    const int64_t from = engine->sim_now_ns();
    std::promise<RunResult> ended;
    auto hold = engine->hold_sim();  // all devices start at once
    session.run_async(step, {}, [&](RunResult result) { ended.set_value(std::move(result)); });
    hold.reset();
    TROUPE_RETURN_IF_ERROR(ended.get_future().get());
    return static_cast<double>(engine->sim_now_ns() - from);
  };
  TROUPE_ASSIGN(const double made, run(making));
  const std::clock_t started = std::clock();
  TROUPE_ASSIGN(const double reduced, run(reducing));
  figures.run_seconds = seconds(started);
  figures.virtual_ms = (reduced - made) / 1e6;
  return figures;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures the ring all-reduce on simulated devices beside its bound; prints a Markdown table.");
  Settings s;
  app.add_option("--devices", s.devices, "How many, one row each")->check(CLI::Range(1, 4096));
  app.add_option("--megabytes", s.megabytes, "Of the tensor on each device")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1e6));
  app.add_option("--bandwidth", s.link.bandwidth, "Of a link, bytes a second")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--latency", s.link.latency_ns, "Of a link, nanoseconds")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  if (const auto status = programs::begin(app, argc, argv)) return *status;
  std::printf(
      "| devices, %g MB on each | nodes | graph and plan, CPU s | simulation, CPU s | peak MiB | virtual ms | bound ms "
      "| ratio | "
      "at most 1.05 |\n|---|---|---|---|---|---|---|---|---|\n",
      s.megabytes);
  bool all = true;
  for (const int n : s.devices) {
    const auto figures = measure_ring(s, n);
    if (!figures.ok()) {
      std::fprintf(stderr, "bench_collectives: %s\n", figures.error().str().c_str());
      return programs::kFailed;
    }
    const double bound = 2.0 * (n - 1) / n * s.megabytes * 1e6 / s.link.bandwidth * 1e3;
    const bool within = figures->virtual_ms <= 1.05 * bound + 1e-9;
    all &= within;
    std::printf("| %d | %d | %.2f | %.2f | %.0f | %.3f | %.3f | %s | %s |\n", n, figures->nodes, figures->plan_seconds,
                figures->run_seconds, troupe::bench::memory_mib("VmHWM"), figures->virtual_ms, bound,
                n == 1 ? "" : fmt::format("{:.3f}", figures->virtual_ms / bound).c_str(), within ? "yes" : "no");
    std::fflush(stdout);
  }
  const int status = programs::end({});
  return all ? status : programs::kFailed;
}
