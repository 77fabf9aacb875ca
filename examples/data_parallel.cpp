// SPDX-License-Identifier: Apache-2.0
// One network, one dataset, six ways to train it with several replicas: each is one option of nn::TrainerOptions.
//
//   images -> queue(s) -> replica 0 on device 0 --gradients--+
//                      -> replica 1 on device 1 --gradients--+--> see --mode and train_images/replica_flags.h
//
// With --per-device 2 replicas 0 and 1 are on device 0: their steps run at once, and each fills the other's gaps.
#include <CLI/CLI.hpp>

#include "device_choice.h"
#include "programs/cluster_flags.h"
#include "programs/program.h"
#include "train_images/replica_flags.h"
#include "troupe/idx.h"
#include "troupe/train.h"

using namespace troupe;

namespace {

struct Options {
  std::string data = "/usr/share/datasets/fashion-mnist", devices = "cpu";
  ReplicaFlags together = {.mode = "ring", .staleness = 2};
  int replicas = 2, per_device = 1, batch = 32;
  int64_t updates = 300;
  programs::ClusterFlags cluster;

  int device_count() const { return (replicas + per_device - 1) / per_device; }
};

nn::ModelOutputs network(const Scope& s, nn::Variables& v, const std::vector<Output>& batch, bool) {
  Output x = nn::flatten(s, nn::pixels_to_float(s, batch[0]));
  x = nn::relu(s, nn::dense(s, v, x, 64, "hidden"));
  const Output logits = nn::dense(s, v, x, 10, "logits");
  const Output labels = s.op("Cast", {batch[1]}, {{"DstT", DType::kInt32}});
  return {nn::sparse_softmax_cross_entropy(s, logits, labels), nn::accuracy(s, logits, labels)};
}

nn::TrainerOptions make_options(const Options& o, const std::vector<std::string>& devices) {
  nn::TrainerOptions t;
  for (int i = 0; i < o.replicas; ++i) t.devices.push_back(devices[static_cast<size_t>(i / o.per_device)]);
  t.input_device = o.devices == "cpu" ? fmt::format("/cpu:{}", o.device_count()) : "/cpu:0";
  // Late gradients are momentum enough (Mitliagkas et al., 2016, Asynchrony begets momentum); more of it may diverge.
  const nn::Schedule rate = nn::constant_rate(0.05f);
  t.optimizer = o.together.mode == "async" ? nn::sgd(rate) : nn::momentum(rate);
  o.together.apply_to(t);
  return t;
}

Status run(const Options& o) {
  TROUPE_ASSIGN(const ImageData images, read_mnist(o.data));
  TROUPE_ASSIGN(const Dataset training, Dataset::from_tensors({images.train_images, images.train_labels}));
  TROUPE_ASSIGN(const Dataset testing, Dataset::from_tensors({images.test_images, images.test_labels}));
  // One more for the input; of simulated ones that stays idle, since files are read by the CPU.
  const int count = o.device_count() + (o.devices == "gpu" ? 0 : 1);
  TROUPE_ASSIGN(const ChosenDevices chosen, choose_devices(o.devices, count, o.cluster));
  const Dataset batches = training.shuffle(10000, 1).repeat(-1).batch(o.batch, true);
  TROUPE_ASSIGN(auto trainer, nn::Trainer::create(*chosen.engine, network, batches, make_options(o, chosen.names)));
  TROUPE_RETURN_IF_ERROR(trainer->initialise());

  TROUPE_ASSIGN(const nn::Metrics before, trainer->evaluate(testing.batch(500)));
  int64_t examples = 0;
  const int64_t begun = chosen.now_ns();
  TROUPE_ASSIGN(const nn::RunSummary summary, trainer->run(o.updates, [&](const nn::StepReport& report) {
    examples += report.examples;
    if (report.step > 0 && report.step % 100 == 0)
      programs::print("update {}: loss {:.3f}\n", report.step, report.loss);
  }));
  const double seconds = static_cast<double>(chosen.now_ns() - begun) / 1e9;
  TROUPE_ASSIGN(const nn::Metrics after, trainer->evaluate(testing.batch(500)));

  programs::print("{} replicas, {}: {} updates, {} images in {:.3f} s of {} time, {:.0f} images/s\n", o.replicas,
                  o.together.mode, summary.updates, examples, seconds, chosen.simulated ? "virtual" : "real",
                  static_cast<double>(examples) / seconds);
  if (!(after.loss < before.loss))
    return make_error(Code::kInternal, "the test loss went from {:.4f} to {:.4f}", before.loss, after.loss);
  programs::print("test loss fell from {:.4f} to {:.4f}, accuracy {:.1f} %\n", before.loss, after.loss,
                  100 * after.accuracy);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  CLI::App app("Trains a small network on images with several replicas, in one of six ways.");
  app.option_defaults()->always_capture_default();
  o.together.add_to(app, o.replicas);
  app.add_option("--replicas", o.replicas, "Replicas")->check(CLI::Range(1, 64));
  app.add_option("--per-device", o.per_device, "Replicas on each device, whose steps run at once")
      ->check(CLI::Range(1, 64));
  app.add_option("--devices", o.devices, "Kind of the devices; sim: simulated ones, workers: those of a cluster")
      ->check(CLI::IsMember({"cpu", "sim", "gpu", "workers"}));
  app.add_option("--batch", o.batch, "Images in a batch of one replica")->check(CLI::Range(1, 10000));
  app.add_option("--updates", o.updates, "Updates to make")->check(CLI::Range(1, 1'000'000'000));
  app.add_option("--data", o.data, "Directory with the four idx files of MNIST or Fashion-MNIST");
  o.cluster.add_to(app);
  return programs::run(app, argc, argv, [&] { return run(o); });
}
