// SPDX-License-Identifier: Apache-2.0
// Fits y = 2 a - 3 b + 1 to noisy points by gradient descent.
//
//   points -> dense (kernel, bias: variables) -> mean squared error -> gradients -> update of the variables
#include <CLI/CLI.hpp>
#include <random>

#include "programs/cluster_flags.h"
#include "programs/program.h"
#include "troupe/optimizers.h"
#include "troupe/session.h"

using namespace troupe;

static Status run(int steps, float rate, const programs::ClusterFlags& cluster) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> points, targets;
  for (int i = 0; i < 256; ++i) {
    const float a = normal(random), b = normal(random);
    points.insert(points.end(), {a, b});
    targets.push_back(2 * a - 3 * b + 1 + 0.01f * normal(random));
  }

  TROUPE_ASSIGN(auto engine, Engine::create(cluster.engine()));
  cluster.forget_former_client(*engine);
  Graph graph(engine->ops());
  const Scope s(graph);
  nn::Variables variables;
  const Output x = s.constant(Tensor::of<float>(points, {256, 2}));
  const Output wanted = s.constant(Tensor::of<float>(targets, {256, 1}));
  const Output found = nn::dense(s, variables, x, 1, "line");
  const Output loss = nn::mean_squared_error(s, found, wanted);
  const Node* update = nn::minimize(s, variables, nn::sgd(nn::constant_rate(rate)), loss);
  TROUPE_RETURN_IF_ERROR(s.status());

  Session session(*engine, graph);
  TROUPE_RETURN_IF_ERROR(session.run(variables.initializers()));
  for (int step = 0; step <= steps; ++step) {
    TROUPE_ASSIGN(const auto results, session.run({loss}, {update}));
    if (step % 20 == 0) programs::print("step {:3}: loss {:.5f}\n", step, results[0].data<float>()[0]);
  }
  TROUPE_ASSIGN(const auto line, session.run(variables.trainable_reads(s)));
  const float *kernel = line[0].data<float>(), *bias = line[1].data<float>();
  programs::print("y = {:.2f} a + {:.2f} b + {:.2f}\n", kernel[0], kernel[1], bias[0]);
  return {};
}

int main(int argc, char** argv) {
  int steps = 100;
  float rate = 0.1f;
  CLI::App app("Fits a line to noisy points by gradient descent.");
  app.add_option("--steps", steps, "Updates")->check(CLI::NonNegativeNumber)->capture_default_str();
  app.add_option("--rate", rate, "Learning rate")->check(CLI::PositiveNumber)->capture_default_str();
  programs::ClusterFlags cluster;
  cluster.add_to(app);
  return programs::run(app, argc, argv, [&] { return run(steps, rate, cluster); });
}
