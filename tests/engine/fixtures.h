// SPDX-License-Identifier: Apache-2.0
// An engine with a graph, a scope and a session on it, and the few nodes, values and checks that the tests of engine/
// and actors/ need again and again.
#pragma once
#include <catch2/catch.hpp>

#include "tests/op_library.h"
#include "troupe/scope.h"
#include "troupe/session.h"

namespace troupe {

using Outputs = std::vector<Output>;

/// 1 FLOP and 1 byte take 1 ns, a launch 10; a link moves 1 byte a ns after 100.
constexpr DeviceRates kRates{.flops = 1e9, .memory_bandwidth = 1e9, .launch_ns = 10};
constexpr LinkRates kLink{.bandwidth = 1e9, .latency_ns = 100};

inline Tensor f(float v) { return Tensor::scalar(v); }
inline float number(const Tensor& t) { return t.data<float>()[0]; }

/// Checks that a run failed with this code, in words that `text` is among.
inline void refused(const RunResult& result, Code code, std::string_view text = {}) {
  REQUIRE_FALSE(result.ok());
  INFO(result.error().str());
  CHECK(result.error().code == code);
  CHECK(result.error().message.find(text) != std::string::npos);
}

struct TestEngine {
  explicit TestEngine(std::vector<int> cpu_threads = {1}, int64_t memory_limit = 0)
      : engine(make(std::move(cpu_threads), memory_limit)), graph(engine->ops()), scope(graph),
        session(std::make_unique<Session>(*engine, graph)) {}

  Output placeholder(DType dtype, PartialShape shape, std::string_view name = "x") {
    return scope.named(name).op("Placeholder", {}, {{"dtype", dtype}, {"shape", std::move(shape)}});
  }
  Output variable(const std::string& name, DType dtype, PartialShape shape) {
    return scope.named(name).op("VarHandleOp", {},
                                {{"dtype", dtype}, {"shape", std::move(shape)}, {"shared_name", name}});
  }
  Output queue(const std::string& name, DType dtype, int64_t capacity = 4) {
    return scope.named(name).op("FIFOQueueV2", {},
                                {{"component_types", std::vector<DType>{dtype}}, {"capacity", capacity}});
  }
  Output dequeue(Output queue, DType dtype) {
    return scope.op("QueueDequeueV2", {queue}, {{"component_types", std::vector<DType>{dtype}}});
  }
  /// The value of `fetch`; the graph and the step must be right.
  Tensor value(std::vector<Feed> feeds, Output fetch) {
    INFO((scope.ok() ? "" : scope.status().error().str()));
    REQUIRE(scope.ok());
    REQUIRE(fetch);
    auto result = session->run(std::move(feeds), {fetch});
    INFO((result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    return (*result)[0];
  }

  std::unique_ptr<Engine> engine;
  Graph graph;
  Scope scope;
  std::unique_ptr<Session> session;

 private:
  static std::unique_ptr<Engine> make(std::vector<int> cpu_threads, int64_t memory_limit) {
    auto engine = Engine::create(
        {.cpu_threads = std::move(cpu_threads), .memory_limit = memory_limit, .op_library = testing::op_library()});
    REQUIRE(engine.ok());
    return std::move(*engine);
  }
};

}  // namespace troupe
