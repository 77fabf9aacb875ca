// SPDX-License-Identifier: Apache-2.0
// A graph on an engine of its own, for tests of layers and optimizers.
#pragma once
#include <catch2/catch.hpp>

#include <random>

#include "tests/op_library.h"
#include "troupe/optimizers.h"
#include "troupe/session.h"

namespace troupe::nn {

using Names = std::vector<std::string>;

inline std::unique_ptr<Engine> engine_of(int devices) {
  auto made = Engine::create(
      {.cpu_threads = std::vector<int>(static_cast<size_t>(devices), 1), .op_library = testing::op_library()});
  REQUIRE(made.ok());
  return std::move(*made);
}

/// Normally distributed floats.
inline Tensor random_tensor(const Shape& shape, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  for (float& v : values) v = normal(random);
  return Tensor::of<float>(std::span<const float>(values), shape);
}

struct Fixture {
  explicit Fixture(int devices = 1) : engine(engine_of(devices)) {}

  std::unique_ptr<Engine> engine;
  Graph graph{engine->ops()};
  Scope s{graph};
  Variables variables;
  std::unique_ptr<Session> session = std::make_unique<Session>(*engine, graph);

  std::vector<Tensor> run(const std::vector<Output>& fetches, const std::vector<const Node*>& targets = {}) {
    INFO((s.ok() ? std::string() : s.status().error().str()));
    REQUIRE(s.ok());
    auto result = session->run({}, fetches, targets);
    INFO((result.ok() ? std::string() : result.error().str()));
    REQUIRE(result.ok());
    return std::move(*result);
  }
  std::vector<float> floats(Output x) {
    const Tensor t = run({x})[0];
    const auto values = t.values<float>();
    return {values.begin(), values.end()};
  }
  float number(Output x) { return floats(x).at(0); }
  void initialise() { run({}, variables.initializers()); }
  Output values(std::initializer_list<float> v, const Shape& shape) { return s.constant(Tensor::of<float>(v, shape)); }
  // A value of the container as it is now.
  Tensor variable(const std::string& name) {
    auto snapshot = engine->snapshot().get();
    REQUIRE(snapshot.ok());
    REQUIRE(snapshot->variables.contains(name));
    return snapshot->variables.at(name);
  }
};

}  // namespace troupe::nn
