// SPDX-License-Identifier: Apache-2.0
// Uses the installed library as a project of its own would: a typed builder, a session, a step asked for by message.
#include <caf/all.hpp>
#include <cstdio>

#include "troupe/embed.h"
#include "troupe/ops.h"

int main() {
  using namespace troupe;
  auto engine = Engine::create({.cpu_threads = {1}});
  if (!engine.ok()) return std::printf("%s\n", engine.error().str().c_str()), 1;
  Graph graph((*engine)->ops());
  Scope scope(graph);
  Output x = scope.constant(Tensor::of<float>({1, 2}));
  Output y = ops::Mul(scope, x, scope.constant(Tensor::of<float>({5, 6})));
  Session session(**engine, graph);
  auto prepared = session.prepare({}, {y});
  if (!prepared.ok()) return std::printf("%s\n", prepared.error().str().c_str()), 1;
  caf::scoped_actor self{actor_system(**engine)};
  run_step(session, *prepared, {}, self, 7);
  bool right = false;
  self->receive([&](const StepDone& done) {
    right = done.tag == 7 && done.result->ok() && (*done.result)->front().identical(Tensor::of<float>({5, 12}));
  });
  std::puts(right ? "5 12" : "wrong");
  return right ? 0 : 1;
}
