// SPDX-License-Identifier: Apache-2.0
// Learns y = 2 a - 3 b + 1 and answers questions meanwhile, with the weights of the moment.
//
//   points ──> Trainer, cpu:0 ──> variables of container "line"
//                                          │ read by each batch
//   thread 0 ─┐                            v
//             ├─run─> Batcher ──> a second graph, cpu:1 ──> answers
//   thread 1 ─┘
//
// docs/serving.md tells what such reads promise, and how to serve weights of one moment.
#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <random>
#include <thread>

#include "programs/program.h"
#include "troupe/batcher.h"
#include "troupe/train.h"

using namespace troupe;

static float line_of(float a, float b) { return 2 * a - 3 * b + 1; }

static Output line(const Scope& s, nn::Variables& variables, Output points) {
  return nn::dense(s, variables, points, 1, "line");
}

/// Asks until it is told to stop; the mean error of the last hundred answers.
static float ask(std::stop_token stop, Batcher& batcher, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  float error = 0;
  do {
    error = 0;
    for (int i = 0; i < 100; ++i) {
      const float a = normal(random), b = normal(random);
      const RunResult answer = batcher.run({Tensor::of<float>({a, b}, {1, 2})});
      if (!answer.ok()) return NAN;
      error += std::abs((*answer)[0].data<float>()[0] - line_of(a, b)) / 100;
    }
  } while (!stop.stop_requested());
  return error;
}

static Status run(int updates) {
  TROUPE_ASSIGN(auto engine, Engine::create({.cpu_threads = {1, 1}}));

  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> points, values;
  for (int i = 0; i < 1024; ++i) {
    points.insert(points.end(), {normal(random), normal(random)});
    values.push_back(line_of(points[2 * i], points[2 * i + 1]));
  }
  TROUPE_ASSIGN(const Dataset data,
                Dataset::from_tensors({Tensor::of<float>(points, {1024, 2}), Tensor::of<float>(values, {1024, 1})}));
  nn::TrainerOptions options;
  options.devices = {"/cpu:0"};
  options.container = "line";
  options.optimizer = nn::sgd(nn::constant_rate(0.01f));
  const auto model = [](const Scope& s, nn::Variables& variables, const std::vector<Output>& batch, bool) {
    return nn::ModelOutputs{nn::mean_squared_error(s, line(s, variables, batch[0]), batch[1]), {}};
  };
  TROUPE_ASSIGN(auto trainer, nn::Trainer::create(*engine, model, data.repeat().batch(16, true), options));
  TROUPE_RETURN_IF_ERROR(trainer->initialise());

  // The same layers over variables of the same container are the same model.
  Graph graph(engine->ops());
  const Scope s = Scope(graph).device("/cpu:1");
  nn::Variables variables("line");
  const Output x = s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{-1, 2}}});
  const Output y = line(s, variables, x);
  TROUPE_RETURN_IF_ERROR(s.status());
  Session session(*engine, graph);
  TROUPE_ASSIGN(auto batcher, Batcher::create(session, {x}, {y}, {.most_rows = 8}));

  float errors[2] = {};
  {
    std::jthread one([&](std::stop_token stop) { errors[0] = ask(std::move(stop), *batcher, 2); });
    std::jthread two([&](std::stop_token stop) { errors[1] = ask(std::move(stop), *batcher, 3); });
    TROUPE_RETURN_IF_ERROR(trainer->run(updates, [&](const nn::StepReport& r) {
      if (r.step % (updates / 5 + 1) == 0) programs::print("step {:4}: loss {:.5f}\n", r.step, r.loss);
    }));
  }
  programs::print("answers while it learnt: {} in {} batches\n", batcher->rows(), batcher->steps());
  if (std::isnan(errors[0]) || std::isnan(errors[1])) return make_error(Code::kInternal, "a question had no answer");
  std::stop_source at_once;
  at_once.request_stop();
  const float error = ask(at_once.get_token(), *batcher, 4);
  programs::print("mean error of the answers now: {:.3f}\n", error);
  return error < 0.1f || updates < 500 ? Status() : make_error(Code::kInternal, "the answers are wrong by {}", error);
}

int main(int argc, char** argv) {
  int updates = 1000;
  CLI::App app("Fits a line to points and answers questions about it meanwhile.");
  app.add_option("--updates", updates, "Updates")->check(CLI::NonNegativeNumber)->capture_default_str();
  return programs::run(app, argc, argv, [&] { return run(updates); });
}
