// SPDX-License-Identifier: Apache-2.0
// What placement by cost gains: simulated training steps on several devices, placed by cost, all on one device, and at
// random; how long placing a large graph takes; and how near the simulation with measured costs comes to real steps.
// Prints Markdown tables.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>

#include "plan/placement.h"
#include "programs/program.h"
#include "troupe/gradients.h"
#include "troupe/op_library.h"
#include "troupe/optimizers.h"
#include "troupe/session.h"

namespace {
using namespace troupe;
using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

template <class T> T must(Result<T> r) {
  if (!r.ok()) {
    std::fprintf(stderr, "bench_placement: %s\n", r.error().str().c_str());
    std::exit(1);
  }
  return std::move(*r);
}
void must(Status s) {
  if (!s.ok()) must(Result<int>(std::move(s.error())));
}

// -- graphs -----------------------------------------------------------------------------------------------------------

/// Blocks of four branches of convolutions, concatenated: the shape of Inception v1, `width` channels a branch.
Output inception(const Scope& s, nn::Variables& v, Output x, int blocks, int64_t width) {
  int count = 0;
  const auto conv = [&](Output in, int64_t filters, int size) {
    return nn::relu(s, nn::conv2d(s, v, in, filters, size, fmt::format("conv{}", count++), {.padding = "SAME"}));
  };
  Output h = conv(x, width, 3);
  for (int i = 0; i < blocks; ++i) {
    const Output pooled = nn::max_pool(s, h, 3, 1, "SAME");
    const Output branches[] = {conv(h, width, 1), conv(conv(h, width, 1), width, 3),
                               conv(conv(h, width / 2, 1), width, 5), conv(pooled, width, 1)};
    h = s.op("ConcatV2", {branches[0], branches[1], branches[2], branches[3], s.constant(3)});
  }
  return nn::dense(s, v, nn::flatten(s, nn::max_pool(s, h, 4)), 10, "logits");
}

/// `layers` of LSTM cells over `steps` of x [batch, steps, units], every step with nodes of its own.
Output lstm(const Scope& s, nn::Variables& v, Output x, int layers, int steps) {
  const int64_t batch = x.shape().dim(0), units = x.shape().dim(2);
  const auto zeros = [&] { return s.constant(must(Tensor::zeros(DType::kFloat32, {batch, units}))); };
  std::vector<Output> h(static_cast<size_t>(layers)), c(h.size()), kernel, bias;
  for (int l = 0; l < layers; ++l) {
    h[static_cast<size_t>(l)] = zeros();
    c[static_cast<size_t>(l)] = zeros();
    kernel.push_back(v.read(s, fmt::format("cell{}/kernel", l), {2 * units, 4 * units}, nn::glorot_uniform()));
    bias.push_back(v.read(s, fmt::format("cell{}/bias", l), {4 * units}, nn::zeros()));
  }
  const Node* inputs = s.node("Unpack", {x}, {{"num", int64_t{steps}}, {"axis", int64_t{1}}});
  for (int t = 0; t < steps; ++t) {
    Output in = inputs->out(t);
    for (size_t l = 0; l < h.size(); ++l) {
      const Output both = s.op("ConcatV2", {in, h[l], s.constant(1)});
      const Output gates = s.op("BiasAdd", {s.op("MatMul", {both, kernel[l]}), bias[l]});
      const Node* parts = s.node("Split", {s.constant(1), gates}, {{"num_split", int64_t{4}}});
      const Output keep = s.op("Mul", {c[l], s.op("Sigmoid", {parts->out(2)})});
      const Output add = s.op("Mul", {s.op("Sigmoid", {parts->out(0)}), s.op("Tanh", {parts->out(1)})});
      c[l] = s.op("AddV2", {keep, add});
      h[l] = s.op("Mul", {s.op("Tanh", {c[l]}), s.op("Sigmoid", {parts->out(3)})});
      in = h[l];
    }
  }
  return nn::dense(s, v, h.back(), 10, "logits");
}

/// Towers of dense layers of different depths and widths on the same input, added up.
Output branching(const Scope& s, nn::Variables& v, Output x, int branches) {
  std::vector<Output> ends;
  for (int b = 0; b < branches; ++b) {
    Output h = x;
    for (int i = 0; i <= b % 4 + 1; ++i)
      h = nn::relu(s, nn::dense(s, v, h, 256 * (1 + (b + i) % 3), fmt::format("tower{}_{}", b, i)));
    ends.push_back(nn::dense(s, v, h, 10, fmt::format("tower{}_end", b)));
  }
  return s.op("AddN", ends);
}

using Build = std::function<Output(const Scope&, nn::Variables&, Output x)>;

/// A training step of a network.
struct Training {
  Training(const OpRegistry& ops, const Shape& input, const Build& build) : graph(ops) {
    const Scope s(graph);
    x = s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape(input)}});
    const Output logits = build(s, variables, x);
    must(s.status());
    const Tensor labels = must(Tensor::zeros(DType::kInt32, {logits.shape().dim(0)}));
    loss = nn::sparse_softmax_cross_entropy(s, logits, s.constant(labels));
    update = nn::minimize(s, variables, nn::sgd(nn::constant_rate(0.01f)), loss);
    must(s.status());
  }
  Graph graph;
  nn::Variables variables;
  Output x, loss;
  const Node* update = nullptr;
};

std::vector<PlacementDevice> gpus(int count) {
  std::vector<PlacementDevice> out;
  for (int i = 0; i < count; ++i)
    out.push_back({fmt::format("/job:localhost/replica:0/task:0/device:sim:{}", i),
                   {.flops = 10e12, .memory_bandwidth = 900e9, .launch_ns = 3000, .memory = int64_t{16} << 30}});
  return out;
}

const LinkRates kLink = {.bandwidth = 50e9, .latency_ns = 3000};

// -- rows -------------------------------------------------------------------------------------------------------------

void compare(const char* name, const Training& t, int devices, int placements) {
  PlacementOptions options;
  options.devices = gpus(devices);
  options.link = kLink;
  const auto begin = Clock::now();
  const Placement placed =
      must(place(t.graph, std::span(&t.x, 1), std::span(&t.loss, 1), std::span(&t.update, 1), options));
  const double took = ms_since(begin);
  options.devices = gpus(1);
  const Placement single =
      must(place(t.graph, std::span(&t.x, 1), std::span(&t.loss, 1), std::span(&t.update, 1), options));

  // At random, but with each variable's handle, reads and updates together.
  const StepGraph step(t.graph, std::span(&t.x, 1), std::span(&t.loss, 1), std::span(&t.update, 1));
  const Frames frames = must(find_frames(step));
  std::vector<std::string> names;
  for (const PlacementDevice& d : gpus(devices)) names.push_back(d.name);
  const DeviceList list = must(DeviceList::make(names));
  Constraints constraints = must(Constraints::find(t.graph, step, list, {}));
  const StepPlacement own = place_step(step, frames, gpus(devices), kLink, nullptr, Placing::kByCost, constraints);
  Simulator simulator(own.tasks.graph, own.cluster);
  std::mt19937 random(1);
  double best = 1e300;
  std::vector<uint32_t> device_of_group(own.tasks.graph.groups()), device_of(own.tasks.graph.size());
  for (int i = 0; i < placements; ++i) {
    for (uint32_t& d : device_of_group) d = static_cast<uint32_t>(random() % static_cast<uint32_t>(devices));
    for (uint32_t task = 0; task < device_of.size(); ++task)
      device_of[task] = device_of_group[own.tasks.graph.task(task).group];
    best = std::min(best, simulator.run(device_of).step_ns);
  }
  std::printf("| %s | %zu | %.0f | %.0f | %.0f | %.2f | %.2f | %.0f |\n", name, placed.nodes.size(),
              placed.step_ns / 1e3, single.step_ns / 1e3, best / 1e3, single.step_ns / placed.step_ns,
              best / placed.step_ns, took);
  std::fflush(stdout);
}

/// Layers of nodes that read two of the layer before: as many nodes as asked for.
void large(const OpRegistry& ops, int nodes, int devices) {
  Graph graph(ops);
  const Scope s(graph);
  const Output x = s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{64, 64}}});
  constexpr size_t kWidth = 500;
  std::vector<Output> layer(kWidth, x);
  std::mt19937 random(1);
  while (graph.size() < nodes) {
    std::vector<Output> next;
    for (size_t i = 0; i < kWidth; ++i) {
      const Output& beside = layer[(i + 1 + random() % 3) % kWidth];
      next.push_back(s.op(i % 3 == 0 ? "MatMul" : "AddV2", {layer[i], beside}));
    }
    layer = std::move(next);
  }
  must(s.status());
  PlacementOptions options;
  options.devices = gpus(devices);
  options.link = kLink;
  const auto begin = Clock::now();
  const Placement placed = must(place(graph, std::span(&x, 1), layer, {}, options));
  std::printf("\n%d nodes on %d devices: placed in %.2f s; predicted step %.2f ms, %.1f devices busy\n", graph.size(),
              devices, ms_since(begin) / 1e3, placed.step_ns / 1e6, [&] {
                double busy = 0;
                for (const double b : placed.busy_ns) busy += b;
                return busy / placed.step_ns;
              }());
  std::fflush(stdout);
}

/// How predictions are measured.
struct Timing {
  int repeats = 7, rounds = 40;
  LinkRates link = {.bandwidth = 1e15, .latency_ns = 100'000};
};

struct Prediction {
  double predicted_ms = 0, real_ms = 0;
  double error() const { return predicted_ms / real_ms - 1; }
};

/// Predicted against real step time on CPU devices of a thread each.
Prediction predict_once(int devices, const Shape& input, const Build& build, int rounds, const LinkRates& link) {
  auto engine = must(Engine::create({.cpu_threads = std::vector<int>(static_cast<size_t>(devices), 1)}));
  Training t(engine->ops(), input, build);
  constexpr int kMeasured = 20;
  std::shared_ptr<const CostModel> costs;
  Tensor value = must(Tensor::make(DType::kFloat32, input));
  for (int64_t i = 0; i < value.elements(); ++i)
    value.mutable_data<float>()[i] = static_cast<float>(i * 7919 % 1000) * 1e-3f;
  const auto open = [&] {
    auto session = std::make_unique<Session>(*engine, t.graph,
                                             SessionOptions{.passes = GraphPasses::none(),
                                                            .placing = Placing::kByCost,
                                                            .costs = costs,
                                                            .link = link,
                                                            .timed_steps = kMeasured});
    return session;
  };
  auto session = open();
  must(session->run({}, std::vector<Output>{}, t.variables.initializers()));
  // Steps measured with estimates only place the steps that are measured for the prediction.
  for (int again = 0; again < 2; ++again) {
    auto step = must(session->prepare({t.x}, {t.loss}, {t.update}));
    for (int i = 0; i <= kMeasured; ++i) must(session->run(step, {value}));
    costs = std::make_shared<const CostModel>(session->costs());
    session = open();
  }
  auto step = must(session->prepare({t.x}, {t.loss}, {t.update}));
  PlacementOptions options;
  for (const std::string& device : engine->devices()) options.devices.push_back({device, {}});
  options.link = link;
  options.costs = costs.get();
  const Placement placed =
      must(place(t.graph, std::span(&t.x, 1), std::span(&t.loss, 1), std::span(&t.update, 1), options));
  std::vector<double> ms;
  for (int i = 0; i < rounds; ++i) {
    const auto begin = Clock::now();
    must(session->run(step, {value}));
    ms.push_back(ms_since(begin));
  }
  std::ranges::sort(ms);
  return {placed.step_ns / 1e6, ms[ms.size() / 2]};
}

/// The machine's speed changes with its neighbours, so the median of several is told.
void predict(const char* name, int devices, const Shape& input, const Build& build, const Timing& timing) {
  std::vector<Prediction> all;
  for (int i = 0; i < timing.repeats; ++i)
    all.push_back(predict_once(devices, input, build, timing.rounds, timing.link));
  std::ranges::sort(all, {}, &Prediction::error);
  const Prediction& p = all[all.size() / 2];
  std::printf("| %s | %d | %.2f | %.2f | %+.1f %% | %+.1f to %+.1f %% |\n", name, devices, p.predicted_ms, p.real_ms,
              p.error() * 100, all.front().error() * 100, all.back().error() * 100);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures placement by cost; prints Markdown tables.");
  int devices = 4, placements = 1000, nodes = 100'000, many = 64;
  Timing timing;
  std::vector<std::string> parts = {"graphs", "large", "predict"};
  app.add_option("--devices", devices, "Simulated GPUs of the first table")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--random", placements, "Random placements to compare with")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--nodes", nodes, "Nodes of the large graph")->capture_default_str()->check(CLI::Range(1, 10'000'000));
  app.add_option("--many", many, "Devices of the large graph")->capture_default_str()->check(CLI::Range(1, 10'000));
  app.add_option("--rounds", timing.rounds, "Real steps timed for a prediction; their median counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 100'000));
  app.add_option("--repeats", timing.repeats, "Predictions; that with the median error is shown, and the range")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--latency", timing.link.latency_ns,
                 "Nanoseconds that a tensor takes to another CPU device, for predictions")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e9));
  app.add_option("--parts", parts, "What to measure")->delimiter(',')->check(CLI::IsMember(parts));
  if (const auto status = programs::begin(app, argc, argv)) return *status;
  const auto wanted = [&](const char* part) { return std::ranges::find(parts, part) != parts.end(); };

  auto [ops, kernels] = *make_op_library();
  if (wanted("graphs")) {
    std::printf(
        "| training step, %d simulated GPUs | nodes | by cost, us | one device, us | best of %d random, us | one / by "
        "cost | "
        "random / by cost | placed in ms |\n|---|---|---|---|---|---|---|---|\n",
        devices, placements);
    compare(
        "Inception-like, 9 blocks, batch 32",
        {ops, {32, 32, 32, 3}, [](const Scope& s, nn::Variables& v, Output x) { return inception(s, v, x, 9, 64); }},
        devices, placements);
    compare("LSTM, 8 layers of 512, 20 steps, batch 64",
            {ops, {64, 20, 512}, [](const Scope& s, nn::Variables& v, Output x) { return lstm(s, v, x, 8, 20); }},
            devices, placements);
    compare("branching, 12 towers, batch 256",
            {ops, {256, 784}, [](const Scope& s, nn::Variables& v, Output x) { return branching(s, v, x, 12); }},
            devices, placements);
  }
  if (wanted("large")) large(ops, nodes, many);
  if (wanted("predict")) {
    std::printf(
        "\n| training step, placed by cost | CPU devices | predicted ms | real ms | error | from, to "
        "|\n|---|---|---|---|---|---|\n");
    for (const int count : {1, 2}) {
      predict(
          "Inception-like, 3 blocks, batch 8", count, {8, 16, 16, 3},
          [](const Scope& s, nn::Variables& v, Output x) { return inception(s, v, x, 3, 32); }, timing);
      predict(
          "LSTM, 4 layers of 128, 8 steps, batch 32", count, {32, 8, 128},
          [](const Scope& s, nn::Variables& v, Output x) { return lstm(s, v, x, 4, 8); }, timing);
      predict(
          "branching, 8 towers, batch 64", count, {64, 784},
          [](const Scope& s, nn::Variables& v, Output x) { return branching(s, v, x, 8); }, timing);
    }
  }
  return programs::end({});
}
