// SPDX-License-Identifier: Apache-2.0
// The program of README.md: two layers on two device actors learn the exclusive or.
//
//   x ──> hidden (cpu:0) ──> out, loss (cpu:1)
//              ^                  ^
//              └── variables in a container, updated by train
#include <CLI/CLI.hpp>
#include <cstdio>

#include "programs/program.h"
#include "troupe/optimizers.h"
#include "troupe/session.h"
using namespace troupe;

int main(int argc, char** argv) {
  CLI::App app("Two layers on two device actors learn the exclusive or: the program of README.md.");
  if (const auto status = programs::begin(app, argc, argv)) return *status;
  auto engine = Engine::create({.cpu_threads = {1, 1}});  // two devices, each an actor
  if (!engine.ok()) return std::fprintf(stderr, "%s\n", engine.error().str().c_str()), 1;
  Graph graph((*engine)->ops());
  Scope scope(graph), first = scope.device("/cpu:0"), second = scope.device("/cpu:1");
  nn::Variables model;  // live in a container, an actor too

  Output x = first.constant(Tensor::of<float>({0, 0, 0, 1, 1, 0, 1, 1}, {4, 2}));
  Output labels = second.constant(Tensor::of<int32_t>({0, 1, 1, 0}));
  Output hidden = nn::tanh(first, nn::dense(first, model, x, 8, "hidden"));
  Output loss = nn::sparse_softmax_cross_entropy(second, nn::dense(second, model, hidden, 2, "out"), labels);
  const Node* train = nn::minimize(scope, model, nn::adam(nn::constant_rate(0.05f)), loss);

  Session session(**engine, graph);
  RunResult result = session.run(model.initializers());
  for (int step = 0; step < 200 && result.ok(); ++step) result = session.run({loss}, {train});
  if (!result.ok()) return std::fprintf(stderr, "%s\n", result.error().str().c_str()), 1;
  std::printf("loss %.4f\n", (*result)[0].data<float>()[0]);
  return programs::end({});
}
