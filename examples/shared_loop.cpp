// SPDX-License-Identifier: Apache-2.0
// A recurrent network of two layers, unrolled by one while loop that two devices share: each has a layer and its state,
// so the second works on one step of the sequence while the first goes on with the next.
//
//   /cpu:0   state -> lower -> lower -> lower -> ...
//                       |        |        |
//   /cpu:1   state -> upper -> upper -> upper -> ...
#include <CLI/CLI.hpp>

#include "programs/cluster_flags.h"
#include "programs/program.h"
#include "troupe/control_flow.h"
#include "troupe/gradients.h"
#include "troupe/nn.h"
#include "troupe/session.h"

using namespace troupe;
using Outputs = std::vector<Output>;

static Status run(int steps, int size, const programs::ClusterFlags& cluster) {
  TROUPE_ASSIGN(auto engine, Engine::create(cluster.engine({.cpu_threads = {1, 1}})));
  Graph graph(engine->ops());
  const Scope s(graph);
  const std::vector<std::string> devices = {"/cpu:0", "/cpu:1"};
  const auto filled = [&](const Scope& on, Shape shape, float value) {
    std::vector<float> values(static_cast<size_t>(shape.elements()), value);
    return on.constant(Tensor::of<float>(std::span<const float>(values), shape));
  };
  Outputs in, back, init = {s.constant(0)};  // of each layer; what the loop begins with
  for (const std::string& device : devices) {
    in.push_back(filled(s.device(device), {size, size}, 0.5f / static_cast<float>(size)));
    back.push_back(filled(s.device(device), {size, size}, 0.25f / static_cast<float>(size)));
    init.push_back(filled(s.device(device), {1, size}, 0));
  }
  const Output x = filled(s, {1, size}, 1);
  const Outputs last = while_loop(
      s, init,
      [&](const Scope& loop, const Outputs& v) {
        return loop.op("Less", {v[0], loop.constant(steps)});
      },
      [&](const Scope& loop, const Outputs& v) {
        Outputs next = {loop.op("AddV2", {v[0], loop.constant(1)})};
        Output below = x;
        for (size_t layer = 0; layer < devices.size(); ++layer) {
          const Scope on = loop.device(devices[layer]);
          const Output sum =
              on.op("AddV2", {on.op("MatMul", {below, in[layer]}), on.op("MatMul", {v[layer + 1], back[layer]})});
          next.push_back(below = nn::tanh(on, sum));
        }
        return next;
      });
  TROUPE_RETURN_IF_ERROR(s.status());
  TROUPE_ASSIGN(const Outputs gradient, gradients(s, {last[2]}, {x}));

  Session session(*engine, graph);
  TROUPE_ASSIGN(const auto results, session.run({last[2], gradient[0]}));
  programs::print("after {} steps: {}\n", steps, results[0].str(4));
  programs::print("by the input:   {}\n", results[1].str(4));
  for (const DeviceStats& device : engine->device_stats())
    programs::print("{} fired {} nodes\n", device.name, device.nodes);
  return {};
}

int main(int argc, char** argv) {
  int steps = 20, size = 64;
  CLI::App app("A recurrent network in a loop that two devices share, a layer on each.");
  app.add_option("--steps", steps, "Steps of the sequence")->check(CLI::Range(0, 100'000))->capture_default_str();
  app.add_option("--size", size, "Size of each layer")->check(CLI::Range(1, 4096))->capture_default_str();
  programs::ClusterFlags cluster;
  cluster.add_to(app);
  return programs::run(app, argc, argv, [&] { return run(steps, size, cluster); });
}
