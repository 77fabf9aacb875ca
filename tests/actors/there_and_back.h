// SPDX-License-Identifier: Apache-2.0
// A graph over two tasks of a cluster.
#pragma once
#include "tests/engine/fixtures.h"
#include "troupe/cluster.h"

namespace troupe {

/// x on task 0, its negative on task 1, and back.
struct ThereAndBack {
  explicit ThereAndBack(Engine& engine, SessionOptions options = {})
      : graph(engine.ops()), scope(graph), first(scope.device("/job:worker/task:0")),
        second(scope.device("/job:worker/task:1")), session(engine, graph, options) {
    x = scope.named("x").op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape::unknown()}});
    there = first.op("Identity", {x});
    negative = second.op("Neg", {there});
    back = first.op("Mul", {negative, scope.constant(Tensor::scalar(-1.0f))});  // two of Neg would be left out
  }
  RunResult run(const Tensor& value, RunOptions options = {}) { return session.run({{x, value}}, {back}, {}, options); }
  /// Of a task that comes back: until the client is connected again steps are refused at once.
  void check_comes_back(const Tensor& value) {
    RunResult again = run(value);
    while (!again.ok() && again.error().code == Code::kUnavailable) again = run(value);
    INFO((again.ok() ? "" : again.error().str()));
    REQUIRE(again.ok());
    CHECK((*again)[0].identical(value));
  }
  Graph graph;
  Scope scope, first, second;
  Session session;
  Output x, there, negative, back;
};

/// n numbers that repeat after a thousand.
inline Tensor ramp(int64_t n) {
  Tensor out = *Tensor::make(DType::kFloat32, Shape{n});
  float* v = static_cast<float*>(out.mutable_raw());
  for (int64_t i = 0; i < n; ++i) v[i] = static_cast<float>(i % 1000) - 500;
  return out;
}

}  // namespace troupe
