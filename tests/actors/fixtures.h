// SPDX-License-Identifier: Apache-2.0
// An engine with a graph, a scope and a session on it, and the few nodes the tests of actors/ need again and again.
#pragma once
#include <catch2/catch.hpp>

#include "troupe/scope.h"
#include "troupe/session.h"

namespace troupe {

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
    auto engine = Engine::create({.cpu_threads = std::move(cpu_threads), .memory_limit = memory_limit});
    REQUIRE(engine.ok());
    return std::move(*engine);
  }
};

}  // namespace troupe
