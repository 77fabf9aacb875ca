// SPDX-License-Identifier: Apache-2.0
// Fits y = 2 a - 3 b + 1 to points that threads push while it trains, as from sensors or a network.
//
//   thread 0 ─┐
//             ├─push─> DatasetQueue -> batches -> Trainer: dense -> mean squared error -> update
//   thread 1 ─┘
//
// The trainer waits while the queue is empty, the threads while it is full; close() ends the training.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <random>
#include <thread>

#include "programs/cluster_flags.h"
#include "programs/program.h"
#include "troupe/dataset_queue.h"
#include "troupe/train.h"

using namespace troupe;

static void measure(const DatasetQueue& queue, unsigned seed, int points) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (int i = 0; i < points; ++i) {
    const float a = normal(random), b = normal(random);
    const Status pushed = queue.push({Tensor::of<float>({a, b}), Tensor::of<float>({2 * a - 3 * b + 1})});
    if (!pushed.ok()) return;  // nobody wants more
  }
}

static Status run(int points, const programs::ClusterFlags& cluster) {
  TROUPE_ASSIGN(auto engine, Engine::create(cluster.engine()));
  cluster.forget_former_client(*engine);
  TROUPE_ASSIGN(const DatasetQueue queue, DatasetQueue::create({DType::kFloat32, DType::kFloat32}, {{2}, {1}}));
  const auto line = [](const Scope& s, nn::Variables& variables, const std::vector<Output>& batch, bool) {
    const Output found = nn::dense(s, variables, batch[0], 1, "line");
    return nn::ModelOutputs{nn::mean_squared_error(s, found, batch[1]), {}};
  };
  nn::TrainerOptions options;
  options.optimizer = nn::sgd(nn::constant_rate(0.1f));
  TROUPE_ASSIGN(auto trainer, nn::Trainer::create(*engine, line, Dataset::from_queue(queue).batch(16, true), options));
  TROUPE_RETURN_IF_ERROR(trainer->initialise());

  std::jthread pushing([&] {
    { std::jthread one(measure, std::cref(queue), 1, points), two(measure, std::cref(queue), 2, points); }
    queue.close();
  });
  const auto summary = trainer->run(1'000'000, [](const nn::StepReport& r) {
    if (r.step % 20 == 0) programs::print("step {:3}: loss {:.5f}\n", r.step, r.loss);
  });
  queue.close();
  TROUPE_RETURN_IF_ERROR(summary);
  programs::print("{} updates until the data ended\n", summary->updates);
  return {};
}

int main(int argc, char** argv) {
  int points = 800;
  CLI::App app("Fits a line to points that two threads push.");
  app.add_option("--points", points, "Points of each thread")->check(CLI::NonNegativeNumber)->capture_default_str();
  programs::ClusterFlags cluster;
  cluster.add_to(app);
  return programs::run(app, argc, argv, [&] { return run(points, cluster); });
}
