// SPDX-License-Identifier: Apache-2.0
// A first graph: relu(x * w + b) for a fed x, and its gradient by w.
//
//   x --+-> MatMul -> BiasAdd -> Relu -> y        (x is fed)
//   w --+               |
//   b ------------------+         gradients: dy/dw
#include <CLI/CLI.hpp>

#include "programs/cluster_flags.h"
#include "programs/program.h"
#include "troupe/gradients.h"
#include "troupe/nn.h"
#include "troupe/session.h"

using namespace troupe;

static Status run(const programs::ClusterFlags& cluster) {
  TROUPE_ASSIGN(auto engine, Engine::create(cluster.engine()));
  Graph graph(engine->ops());
  const Scope s(graph);
  const Output x = s.named("x").op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{-1, 2}}});
  const Output w = s.named("w").constant(Tensor::of<float>({1, -1, 2, 0.5f}, {2, 2}));
  const Output b = s.named("b").constant(Tensor::of<float>({0.5f, 1}));
  const Output y = nn::relu(s.named("y"), s.op("BiasAdd", {s.op("MatMul", {x, w}), b}));
  // Shapes are checked as the graph is built; the first fault, with its line, is in the scope.
  TROUPE_RETURN_IF_ERROR(s.status());
  TROUPE_ASSIGN(const auto dw, gradients(s, {y}, {w}));

  Session session(*engine, graph);
  const Tensor rows = Tensor::of<float>({1, 2, 3, 4}, {2, 2});
  TROUPE_ASSIGN(const auto results, session.run({{x, rows}}, {y, dw[0]}));
  programs::print("y     = {}\ndy/dw = {}\n", results[0].str(), results[1].str());

  // A feed that does not fit is an error, not a crash.
  auto wrong = session.run({{x, Tensor::of<float>({1, 2, 3})}}, {y});
  if (!wrong.ok()) programs::print("as expected: {}\n", wrong.error().str());
  return {};
}

int main(int argc, char** argv) {
  CLI::App app("Computes relu(x * w + b) and its gradient by w.");
  programs::ClusterFlags cluster;
  cluster.add_to(app);
  return programs::run(app, argc, argv, [&] { return run(cluster); });
}
