// SPDX-License-Identifier: Apache-2.0
// The command line of train_images.
#include "options.h"

#include <CLI/CLI.hpp>

namespace nn = troupe::nn;

const char* const kDescription =
    "Trains a network on Fashion-MNIST, or on any data in MNIST's format, with several replicas, each on a CPU\n"
    "device of its own, that are fed through queues; --mode says how they work together. Ctrl-C, or another signal\n"
    "that asks to end, saves a checkpoint and leaves; the next run goes on from there, in any mode, with the same\n"
    "--batch, --limit, --model, --optimizer and --seed. A second one leaves at once.";

void add_options(CLI::App& app, Options& o) {
  app.footer(
      "Exit status: 0 done, or interrupted by a signal and saved; 1 failed, or interrupted before there\nwas anything "
      "to "
      "save; 2 a wrong command line.");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--data", o.data, "Directory with the four idx files, plain or gzip")->capture_default_str();
  o.together.add_to(app, o.replicas);
  app.add_option("--replicas", o.replicas, "Replicas, each with a device and a thread")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--devices", o.devices, "Of the replicas; gpu: GPUs, workers: those of a cluster, in turn")
      ->check(CLI::IsMember({"cpu", "gpu", "workers"}))
      ->capture_default_str();
  app.add_option("--batch", o.batch, "Images in a batch of one replica")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option("--epochs", o.epochs, "Passes over the training images")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option("--lr", o.rate, "Learning rate at the start; it falls as a cosine [by optimizer]")
      ->check(CLI::PositiveNumber);
  app.add_option("--optimizer", o.optimizer, "How variables follow gradients")
      ->check(CLI::IsMember({"adam", "momentum", "sgd", "adagrad", "rmsprop"}))
      ->capture_default_str();
  app.add_option("--model", o.model, "Network")
      ->check(CLI::IsMember({"convnet", "lenet", "mlp"}))
      ->capture_default_str();
  app.add_option("--dtype", o.dtype, "What the network computes in; its variables are float32")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}))
      ->capture_default_str();
  app.add_flag("--augment", o.augment, "Shift training images by up to 2 pixels and mirror them");
  app.add_option("--seed", o.seed, "Of initial values, order of images, dropout")->capture_default_str();
  app.add_option("--limit", o.limit, "Train on the first so many images only [all]")->check(CLI::PositiveNumber);
  app.add_option("--out", o.out, "Directory of checkpoints and TensorBoard events")->capture_default_str();
  app.add_option("--save-seconds", o.save_seconds, "Time between checkpoints within an epoch")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  auto* fresh = app.add_flag("--fresh", o.fresh, "Start anew although there are checkpoints");
  app.add_flag("--resume", o.resume, "Go on from the last checkpoint; an error when there is none")->excludes(fresh);
  app.add_flag("--check-numerics", o.check_numerics, "Stop at the first node that makes a NaN or an infinity");
  app.add_option("--trace", o.trace, "File to write for ui.perfetto.dev: what every node of every step did and when");
  o.cluster.add_to(app);
}

nn::Optimizer make_optimizer(const Options& o, int64_t updates) {
  const auto schedule = [&](double usual) {
    const double rate = o.rate > 0 ? o.rate : usual;
    return nn::cosine_decay(static_cast<float>(rate), std::max<int64_t>(1, updates), updates / 50,
                            static_cast<float>(rate) / 100);
  };
  if (o.optimizer == "momentum") return nn::momentum(schedule(0.03), 0.9f, true);
  if (o.optimizer == "sgd") return nn::sgd(schedule(0.1));
  if (o.optimizer == "adagrad") return nn::adagrad(schedule(0.03));
  if (o.optimizer == "rmsprop") return nn::rmsprop(schedule(0.001));
  return nn::adam(schedule(0.0015));
}
