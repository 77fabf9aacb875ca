// SPDX-License-Identifier: Apache-2.0
// How much of the time the devices of a pipeline have nothing to do, by schedule, number of stages and micro-batches,
// on simulated devices; beside what the papers calculate. Prints a Markdown table.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>

#include "programs/program.h"
#include "troupe/pipeline.h"
#include "troupe/trace.h"

namespace {
using namespace troupe;

constexpr int64_t kWidth = 4096;
constexpr double kProductNs = 1e6;

/// `count` stages of one square product each, so that forward pass, gradient of the input and gradient of the weights
/// take the same time. The first reads a variable in place of data: it has a gradient of its input too.
std::vector<nn::StageFn> products(int count) {
  const nn::Initializer small = nn::constant_init(1.f / kWidth);
  std::vector<nn::StageFn> stages;
  for (int i = 0; i < count; ++i)
    stages.push_back([=](const Scope& s, nn::Variables& v, const std::vector<Output>& in, const std::vector<Output>&,
                         bool) -> std::vector<Output> {
      const Output x = i == 0 ? v.read(s, "input", {kWidth, kWidth}, small) : in[0];
      const Output y = nn::dense(s, v, x, kWidth, fmt::format("product_{}", i), {.bias = false, .kernel = small});
      return {i + 1 < count ? y : nn::mean_all(s, s.op("Square", {y}))};
    });
  return stages;
}

struct Measured {
  double bubble = 0;  // share of the time
  int peak = 0;       // micro-batches begun and not ended on the first device
};

/// Micro-batches, of each stage of the device, that had begun and not ended at once.
int peak(std::vector<TraceEvent> events, uint32_t device) {
  std::map<std::pair<int64_t, std::string>, std::pair<int64_t, int64_t>> spans;  // by step and stage
  for (const TraceEvent& e : events) {
    if (e.device != device || e.kind != TraceEvent::Kind::kRun || e.node->op().name() != "MatMul") continue;
    const std::string& name = e.node->name();
    const size_t at = name.find("stage_");
    auto& span = spans.try_emplace({e.step, name.substr(at, name.find('/', at) - at)}, e.begin_ns, 0).first->second;
    span = {std::min(span.first, e.begin_ns), std::max(span.second, e.end_ns)};
  }
  std::vector<std::pair<int64_t, int>> changes;
  for (const auto& [key, span] : spans) changes.insert(changes.end(), {{span.first, 1}, {span.second, -1}});
  std::ranges::sort(changes);
  int now = 0, most = 0;
  for (const auto& change : changes) most = std::max(most, now += change.second);
  return most;
}

/// The time of a batch between two others: stages begin the next one as soon as they have updated their variables.
Result<Measured> measure(nn::PipelineSchedule schedule, int devices, int micro_batches) {
  constexpr int kFirst = 2, kMeasured = 2;
  EngineOptions engine_options;
  engine_options.sim.compute = false;
  engine_options.sim.devices.assign(
      static_cast<size_t>(devices),
      {.flops = 2. * kWidth * kWidth * kWidth / kProductNs * 1e9, .memory_bandwidth = 1e15, .launch_ns = 1});
  engine_options.sim.link = {.bandwidth = 1e14, .latency_ns = 1000};
  const int chunks = schedule == nn::PipelineSchedule::kInterleaved ? 2 : 1;
  Measured out;
  std::vector<double> times;
  for (const int batches : {kFirst, kFirst + kMeasured}) {
    TROUPE_ASSIGN(auto engine, Engine::create(engine_options));
    nn::PipelineOptions o;
    for (const std::string& device : engine->devices())
      if (device.find(":sim:") != device.npos) o.devices.push_back(device);
    o.schedule = schedule;
    o.micro_batches = micro_batches;
    o.batches_in_flight = batches;
    o.optimizer = nn::sgd(nn::constant_rate(.01f));
    o.trace = std::make_shared<Trace>();
    TROUPE_ASSIGN(const Tensor rows, Tensor::zeros(DType::kFloat32, {int64_t{micro_batches} * batches, 1}));
    TROUPE_ASSIGN(const Dataset data, Dataset::from_tensors({rows}));
    TROUPE_ASSIGN(auto pipeline,
                  nn::Pipeline::create(*engine, products(devices * chunks), data.batch(micro_batches, true), o));
    TROUPE_RETURN_IF_ERROR(pipeline->initialise());
    const int64_t before = engine->sim_now_ns();
    TROUPE_RETURN_IF_ERROR(pipeline->run(batches));
    times.push_back(static_cast<double>(engine->sim_now_ns() - before));
    const size_t others = engine->devices().size() - o.devices.size();
    out.peak = peak(o.trace->take(), static_cast<uint32_t>(others));
  }
  const double period = (times[1] - times[0]) / kMeasured;
  out.bubble = 1 - 3. * micro_batches * chunks * kProductNs / period;
  return out;
}

Status row(int p, int m) {
  fmt::print("| {} | {} |", p, m);
  const auto share = [&](int chunks) { return 100. * (p - 1) / (chunks * m + p - 1); };
  using enum nn::PipelineSchedule;
  for (const nn::PipelineSchedule schedule : {kGPipe, kOneFOneB, kInterleaved, kZeroBubble}) {
    TROUPE_ASSIGN(const Measured measured, measure(schedule, p, m));
    if (schedule == kOneFOneB) fmt::print(" {:.1f} | {} |", 100 * measured.bubble, measured.peak);
    else if (schedule == kZeroBubble) fmt::print(" {:.1f} | {} |\n", 100 * measured.bubble, measured.peak);
    else
      fmt::print(" {:.1f} | {:.1f} | {} |", share(schedule == kInterleaved ? 2 : 1), 100 * measured.bubble,
                 measured.peak);
  }
  std::fflush(stdout);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures the bubbles of pipelines on simulated devices; prints a Markdown table, shares in percent.");
  std::vector<int> stages = {2, 4, 8}, micro_batches = {8, 24, 64};
  app.add_option("--devices", stages, "Devices")->delimiter(',')->check(CLI::Range(2, 64))->capture_default_str();
  app.add_option("--micro-batches", micro_batches, "In a batch")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  if (const auto status = programs::begin(app, argc, argv)) return *status;
  fmt::print(
      "| devices p | micro-batches m | (p-1)/(m+p-1) | GPipe | in flight | 1F1B | in flight | (p-1)/(2m+p-1) | "
      "interleaved, 2 chunks | in flight | zero-bubble | in flight |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const int p : stages)
    for (const int m : micro_batches)
      if (const Status status = row(p, m); !status.ok()) {
        fmt::print(stderr, "bench_pipeline: {}\n", status.error().str());
        return programs::kFailed;
      }
  return programs::end({});
}
