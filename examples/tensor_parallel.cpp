// SPDX-License-Identifier: Apache-2.0
// Tensor parallel training: both layers of a network split over devices, one by columns and one by rows.
//
//              ┌ columns 0 ─ relu ─ rows 0 ┐
//   images ───>│ columns 1 ─ relu ─ rows 1 │──> sum ──> softmax, loss
//              └ columns 2 ─ relu ─ rows 2 ┘
//     device 0     devices 0, 1, 2                device 0
//
// Weights and their updates stay on their devices; what crosses is the images, and logits to be summed. Source:
// Shoeybi et al., "Megatron-LM", 2019.
#include <CLI/CLI.hpp>

#include "device_choice.h"
#include "programs/cluster_flags.h"
#include "programs/program.h"
#include "troupe/idx.h"
#include "troupe/optimizers.h"
#include "troupe/session.h"
#include "troupe/tensor_parallel.h"

using namespace troupe;

namespace {

constexpr int64_t kBatch = 64, kHidden = 512;

struct Options {
  std::string devices = "cpu", data = "/usr/share/datasets/fashion-mnist";
  int parts = 2, steps = 200;
  programs::ClusterFlags cluster;
};

struct Outcome {
  float first = 0, last = 0;  // losses
  float accuracy = 0;         // on test images
  double step_ms = 0;
};

// Trains with both layers split over `count` devices.
Result<Outcome> train(const Options& options, const ImageData& data, int count, int steps) {
  TROUPE_ASSIGN(const ChosenDevices devices, choose_devices(options.devices, count, options.cluster));
  Graph graph(devices.engine->ops());
  const Scope root(graph), s = root.device(devices.names[0]);
  const auto fed = [&](const PartialShape& shape) {
    return s.op("Placeholder", {}, {{"dtype", DType::kUInt8}, {"shape", shape}});
  };
  nn::Variables model;
  const int64_t height = data.train_images.dim(1), width = data.train_images.dim(2);
  const Output images = fed({-1, height, width}), labels = fed({-1});
  const Output pixels = nn::flatten(s, nn::pixels_to_float(s, images));
  const nn::Spread hidden =
      nn::each(s, nn::dense_by_columns(s, model, pixels, kHidden, "hidden", devices.names), nn::relu);
  const Output logits = nn::dense_by_rows(s, model, hidden, 10, "out");
  const Output classes = s.op("Cast", {labels}, {{"DstT", DType::kInt32}});
  const Output loss = nn::sparse_softmax_cross_entropy(s, logits, classes);
  const Output accuracy = nn::accuracy(s, logits, classes);
  const Node* update = nn::minimize(s, model, nn::adam(nn::constant_rate(0.001f)), loss);
  TROUPE_RETURN_IF_ERROR(root.status());

  Session session(*devices.engine, graph,
                  {.default_device = devices.names[0], .soft_placement = devices.soft_placement()});
  TROUPE_RETURN_IF_ERROR(session.run(model.initializers()));
  Outcome outcome;
  const int64_t begun = devices.now_ns();
  for (int step = 0; step < steps; ++step) {
    const int64_t from = step * kBatch % (data.train_images.dim(0) - kBatch);
    TROUPE_ASSIGN(const Tensor xs, data.train_images.slice(from, from + kBatch));
    TROUPE_ASSIGN(const Tensor ys, data.train_labels.slice(from, from + kBatch));
    TROUPE_ASSIGN(const auto result, session.run({{images, xs}, {labels, ys}}, {loss}, {update}));
    outcome.last = result[0].data<float>()[0];
    if (step == 0) outcome.first = outcome.last;
    if (step % 50 == 0) programs::print("step {:4}: loss {:.3f}\n", step, outcome.last);
  }
  outcome.step_ms = static_cast<double>(devices.now_ns() - begun) / 1e6 / steps;
  TROUPE_ASSIGN(const auto tested, session.run({{images, data.test_images}, {labels, data.test_labels}}, {accuracy}));
  outcome.accuracy = tested[0].data<float>()[0];
  return outcome;
}

Status run(const Options& options) {
  TROUPE_RETURN_IF_ERROR(check_devices(options.devices, options.cluster));
  TROUPE_ASSIGN(const ImageData data, read_mnist(options.data));
  if (data.train_images.dim(0) <= kBatch)
    return invalid_argument("{}: {} images are too few", options.data, data.train_images.dim(0));
  TROUPE_ASSIGN(const Outcome all, train(options, data, options.parts, options.steps));
  programs::print("on {} devices: {:.2f} ms a step{}, loss {:.3f} -> {:.3f}, test accuracy {:.1f} %\n", options.parts,
                  all.step_ms, options.devices == "sim" ? " of virtual time" : "", all.first, all.last,
                  100 * all.accuracy);
  if (options.devices == "sim") {
    TROUPE_ASSIGN(const Outcome one, train(options, data, 1, 1));
    programs::print("on one device: {:.2f} ms; {} devices are {:.2f} times as fast\n", one.step_ms, options.parts,
                    one.step_ms / all.step_ms);
  }
  if (options.steps > 1 && all.last >= all.first) return make_error(Code::kInternal, "the loss did not fall");
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a network on Fashion-MNIST, its layers split over devices.");
  app.add_option("--devices", options.devices,
                 "cpu, sim (simulated, on a virtual clock), gpu, or workers: those of --cluster")
      ->capture_default_str();
  app.add_option("--parts", options.parts, "Devices")->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--steps", options.steps, "Updates")->check(CLI::Range(1, 1'000'000'000))->capture_default_str();
  app.add_option("--data", options.data, "The folder of the four files of Fashion-MNIST or MNIST")
      ->capture_default_str();
  options.cluster.add_to(app);
  return programs::run(app, argc, argv, [&] { return run(options); });
}
