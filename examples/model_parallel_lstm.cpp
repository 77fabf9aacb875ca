// SPDX-License-Identifier: Apache-2.0
// Model parallel training: a deep LSTM learns to write like Jane Austen, each layer on a device of its own.
//
//   device 0   text ─> embedding ─> layer 0 ─┐           time ──>
//   device 1                        layer 1 ─┤      layer 0: chunk 0 │ chunk 1 │ chunk 2 │
//   ...                                      │      layer 1:         │ chunk 0 │ chunk 1 │ chunk 2
//   last       loss <─ softmax <─── layer n <┘      layer 2:         │         │ chunk 0 │ chunk 1
//
// A window of text is cut into chunks of a few characters: while a layer works on one, the layer before works on the
// next. Gradients go back the same way. Source: TensorFlow white paper, 2015, figure 8.
#include <CLI/CLI.hpp>

#include "device_choice.h"
#include "programs/cluster_flags.h"
#include "programs/program.h"
#include "text_windows.h"
#include "troupe/optimizers.h"
#include "troupe/session.h"
#include "troupe/tensor_parallel.h"

using namespace troupe;

namespace {

constexpr Window kWindow = {.rows = 16, .length = 32};
constexpr int64_t kUnits = 64;

struct Options {
  std::string devices = "cpu", text = "/usr/share/common-licenses/GPL-3", table = "whole";
  int parts = 4, steps = 200, chunk = 4;
  programs::ClusterFlags cluster;
};

struct Outcome {
  float first = 0, last = 0;  // losses
  double step_ms = 0;
  std::vector<double> busy = {};  // share of the time, of each device
};

// Trains options.parts layers on `count` devices.
Result<Outcome> train(const Options& options, const Text& text, int count, int steps) {
  TROUPE_ASSIGN(const ChosenDevices devices, choose_devices(options.devices, count, options.cluster));
  Graph graph(devices.engine->ops());
  const Scope root(graph);
  std::vector<Scope> layers;
  for (int i = 0; i < options.parts; ++i)
    layers.push_back(root.device(devices.names[static_cast<size_t>(i * count / options.parts)]));
  const Scope &first = layers.front(), &last = layers.back();

  nn::Variables model;
  const auto characters = [&](const Scope& s) {
    return s.op("Placeholder", {}, {{"dtype", DType::kInt32}, {"shape", PartialShape{kWindow.rows, kWindow.length}}});
  };
  const Output x = characters(first), y = characters(last);
  const auto embed = [&]() -> Output {
    if (options.table == "rows")
      return nn::embedding_by_rows(first, model, x, text.kinds, kUnits, "characters", devices.names);
    if (options.table == "columns")
      return nn::gather(first,
                        nn::embedding_by_columns(first, model, x, text.kinds, kUnits, "characters", devices.names));
    return nn::embedding(first, model, x, text.kinds, kUnits, "characters");
  };
  const Output embedded = embed();
  const auto stack = nn::lstm_stack(layers, model, embedded, kUnits, "stack", {.chunk = options.chunk});
  const Output results = last.op("Reshape", {stack.outputs(last), last.constant(Tensor::of<int32_t>({-1, kUnits}))});
  const Output flat = last.op("Reshape", {y, last.constant(Tensor::of<int32_t>({-1}))});
  const Output loss = nn::sparse_softmax_cross_entropy(last, nn::dense(last, model, results, text.kinds, "out"), flat);
  const Node* update = nn::minimize(last, model, nn::adam(nn::constant_rate(0.005f)), loss);
  TROUPE_RETURN_IF_ERROR(root.status());

  Session session(*devices.engine, graph,
                  {.default_device = devices.names[0], .soft_placement = devices.soft_placement()});
  TROUPE_RETURN_IF_ERROR(session.run(model.initializers()));
  Outcome outcome;
  const auto busy = devices.busy_ns();
  const int64_t begun = devices.now_ns();
  for (int step = 0; step < steps; ++step) {
    const auto [xs, ys] = window_of(text, kWindow, step);
    TROUPE_ASSIGN(const auto result, session.run({{x, xs}, {y, ys}}, {loss}, {update}));
    outcome.last = result[0].data<float>()[0];
    if (step == 0) outcome.first = outcome.last;
    if (step % 20 == 0) programs::print("step {:4}: loss {:.3f}\n", step, outcome.last);
  }
  const auto took = static_cast<double>(devices.now_ns() - begun);
  outcome.step_ms = took / 1e6 / steps;
  for (size_t i = 0; i < busy.size(); ++i)
    outcome.busy.push_back(static_cast<double>(devices.busy_ns()[i] - busy[i]) / took);
  return outcome;
}

Status run(const Options& options) {
  TROUPE_RETURN_IF_ERROR(check_devices(options.devices, options.cluster));
  TROUPE_ASSIGN(const Text text, read_text(options.text, kWindow));
  TROUPE_ASSIGN(const Outcome all, train(options, text, options.parts, options.steps));
  programs::print("{} layers on {} devices: {:.2f} ms a step{}, loss {:.3f} -> {:.3f}\n", options.parts, options.parts,
                  all.step_ms, options.devices == "sim" ? " of virtual time" : "", all.first, all.last);
  for (size_t i = 0; i < all.busy.size(); ++i)
    programs::print("  {}:{} busy {:.0f} % of the time\n", options.devices, i, 100 * all.busy[i]);
  if (options.devices == "sim") {
    TROUPE_ASSIGN(const Outcome one, train(options, text, 1, 1));
    programs::print("on one device: {:.2f} ms; {} devices are {:.2f} times as fast\n", one.step_ms, options.parts,
                    one.step_ms / all.step_ms);
  }
  if (options.steps > 1 && all.last >= all.first) return make_error(Code::kInternal, "the loss did not fall");
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a deep LSTM on a text, each layer on a device of its own.");
  app.add_option("--devices", options.devices,
                 "cpu, sim (simulated, on a virtual clock), gpu, or workers: those of --cluster")
      ->capture_default_str();
  app.add_option("--parts", options.parts, "Layers, and devices")->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--steps", options.steps, "Updates")->check(CLI::Range(1, 1'000'000'000))->capture_default_str();
  app.add_option("--chunk", options.chunk, "Characters that a layer takes at once; 0: the whole window")
      ->check(CLI::Range(0, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--table", options.table, "whole on the first device, or split over all by rows or columns")
      ->check(CLI::IsMember({"whole", "rows", "columns"}))
      ->capture_default_str();
  app.add_option("--text", options.text, "The text to learn, plain or gzip; by default one that every Debian has")
      ->capture_default_str();
  options.cluster.add_to(app);
  return programs::run(app, argc, argv, [&] { return run(options); });
}
