// SPDX-License-Identifier: Apache-2.0
// How long nodes take on a GPU: timed events around their work, in steps that are measured and in no other; what comes
// of that in costs and traces.
#include "gpu/timed_work.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <future>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/gpu/fake_platform.h"
#include "tests/io/temporary_directory.h"
#include "troupe/cost_model.h"
#include "troupe/scope.h"
#include "troupe/session.h"
#include "troupe/trace_file.h"

namespace troupe::testing {
namespace {

using gpu::FakeCall;
using gpu::FakeRuntime;
using gpu::TimedEvents;
using gpu::TimedWork;

/// An engine with a GPU, and a model on it.
struct TimedModel {
  explicit TimedModel(uint64_t seed = 1, int64_t timed_steps = 3)
      : gpus({.seed = seed}), engine(std::move(*Engine::create(gpus.options()))), graph(engine->ops()),
        session(*engine, graph, {.soft_placement = true, .timed_steps = timed_steps}) {
    const Scope scope(graph), gpu = scope.device("/gpu:0");
    x = scope.named("x").op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{-1}}});
    y = gpu.named("y").op("Exp", {gpu.named("twice").op("Add", {x, x})});
    rows = gpu.named("rows").op("Shape", {y});
    const Output v = gpu.named("v").op("VarHandleOp", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{3}}});
    init = gpu.node("AssignVariableOp", {v, gpu.constant(Tensor::of<float>({0, 0, 0}))});
    add = gpu.named("add").node("AssignAddVariableOp", {v, y});
    REQUIRE(scope.ok());
    REQUIRE(session.run({}, {}, {init}).ok());
  }
  RunResult run(std::shared_ptr<Trace> trace = nullptr) {
    return session.run({{x, Tensor::of<float>({1, 2, 3})}}, {y, rows}, {add}, {.trace = std::move(trace)});
  }
  double cost(const char* node) const {
    const CostModel costs = session.costs();
    const MeasuredCost* const cost = costs.find(node, "gpu");
    return cost ? cost->ns : 0;
  }

  FakeGpus gpus;
  std::unique_ptr<Engine> engine;
  Graph graph;
  mutable Session session;
  Output x, y, rows;
  const Node *init, *add;
};

/// Of the fake's clock, which counts whole microseconds; the host's would not do that.
bool is_of_card(double ns) { return ns >= 1000 && ns < 1e6 && ns == std::floor(ns / 1000) * 1000; }

}  // namespace

TEST_CASE("timed work: what lies between two events, read when it is done") {
  const auto runtime = std::make_shared<FakeRuntime>(gpu::FakeOptions{});
  auto stream = runtime->make_stream(0).value();
  const auto events = std::make_shared<TimedEvents>(runtime, 0);
  {
    TimedWork first(events), second(events), nothing(events);
    first.begin(*stream);
    stream->enqueue([] {});
    first.end(*stream);
    stream->enqueue([] {});
    second.begin(*stream);
    for (int i = 0; i < 3; ++i) stream->enqueue([] {});
    second.end(*stream);
    nothing.begin(*stream);
    nothing.end(*stream);
    CHECK_FALSE(first.us());
    runtime->drain();
    CHECK((first.us() >= 1 && first.us() <= 16));
    CHECK((second.us() >= 3 && second.us() <= 48));
    CHECK(nothing.us() == 0);
    CHECK(*second.us_after(first) > *first.us());
    CHECK(first.us_after(second) == -*second.us_after(first));
    CHECK(runtime->timed_events() == 6);
  }
  // Events are used again, also those of work that is not done.
  for (int i = 0; i < 5; ++i) {
    TimedWork work(events);
    work.begin(*stream);
    stream->enqueue([] {});
    work.end(*stream);
  }
  CHECK(runtime->timed_events() == 6);
  runtime->drain();
}

TEST_CASE("timed work: without an event the work is not timed, and that is all") {
  for (const FakeCall call : {FakeCall::kMakeEvent, FakeCall::kRecord})
    for (const int nth : {1, 2}) {
      const auto runtime = std::make_shared<FakeRuntime>(gpu::FakeOptions{});
      auto stream = runtime->make_stream(0).value();
      const auto events = std::make_shared<TimedEvents>(runtime, 0);
      TimedWork work(events), other(events);
      runtime->fail(call, nth, Code::kResourceExhausted);
      work.begin(*stream);
      stream->enqueue([] {});
      work.end(*stream);
      other.begin(*stream);
      other.end(*stream);
      runtime->drain();
      CHECK_FALSE(work.us());
      CHECK(other.us() == 0);
      CHECK_FALSE((nth == 1 && other.us_after(work)));
      CHECK(runtime->work_done() == 1);
    }
}

TEST_CASE("timed work: the card's times of nodes, updates too, reach the cost model, and are the seed's") {
  if (on_real_gpu()) return;
  std::map<uint64_t, double> sums;
  for (const uint64_t seed : {1, 2}) {
    TimedModel m(seed);
    for (int i = 0; i < 2; ++i) REQUIRE(m.run().ok());
    for (const char* const node : {"twice", "y", "add"}) {
      INFO(node << " took " << m.cost(node));
      CHECK(is_of_card(m.cost(node)));
      sums[seed] += m.cost(node);
    }
    const CostModel costs = m.session.costs();
    REQUIRE(costs.find("y", "gpu"));
    CHECK(costs.find("y", "gpu")->bytes == 12);
    // The host tells a shape; no card works for it.
    CHECK(m.cost("rows") > 0);
  }
  CHECK(sums[1] != sums[2]);
}

TEST_CASE("timed work: a step that is not measured records no timed event") {
  if (on_real_gpu()) return;
  TimedModel m(1, 0);
  const int64_t before = m.gpus.runtime->timed_records();
  for (int i = 0; i < 20; ++i) REQUIRE(m.run().ok());
  CHECK(m.gpus.runtime->timed_records() == before);
  CHECK(m.gpus.runtime->timed_events() == 0);
  CHECK(m.cost("y") == 0);
  REQUIRE(m.run(std::make_shared<Trace>()).ok());
  CHECK(m.gpus.runtime->timed_records() > before);
}

TEST_CASE("timed work: a trace tells of a GPU what the host put in and what the card did, in rows of their own") {
  TimedModel m;
  const auto trace = std::make_shared<Trace>();
  for (int i = 0; i < 2; ++i) REQUIRE(m.run(trace).ok());
  const std::vector<TraceEvent> events = trace->take();
  using Kind = TraceEvent::Kind;
  std::map<std::pair<std::string, Kind>, int> count;
  for (const TraceEvent& e : events) {
    if (e.device != 1) continue;
    CHECK(e.end_ns >= (e.kind == Kind::kAnswer ? 0 : e.begin_ns));
    ++count[{e.node ? e.node->name() : "", e.kind}];
    if (e.kind != Kind::kRun || !e.node || e.node->name() != "y") continue;
    // Not before the host put it in.
    const auto launch = std::ranges::find_if(
        events, [&](const TraceEvent& l) { return l.kind == Kind::kLaunch && l.node == e.node && l.step == e.step; });
    REQUIRE(launch != events.end());
    CHECK(e.begin_ns >= launch->begin_ns);
  }
  for (const char* const node : {"twice", "y"}) CHECK(count[{node, Kind::kLaunch}] >= 2);
  for (const char* const node : {"twice", "y", "add"}) CHECK(count[{node, Kind::kRun}] == 2);
  CHECK(count[{"x", Kind::kCopyIn}] == 2);
  CHECK(count[{"y", Kind::kCopyOut}] == 2);
  CHECK(count[{"rows", Kind::kRun}] == 2);
  CHECK(count[{"rows", Kind::kLaunch}] == 0);

  const TemporaryDirectory directory;
  const std::string path = directory.file("trace.json");
  {
    auto file = TraceFile::create(path, *m.engine);
    REQUIRE(file.ok());
    REQUIRE((*file)->write(events).ok());
    REQUIRE((*file)->close().ok());
  }
  std::map<int, std::string> rows;
  std::map<std::string, std::string> row_of;
  std::ifstream in(path);
  for (const auto& e : nlohmann::json::parse(in)) {
    if (e["name"] == "thread_name") {
      CHECK(rows.emplace(e["tid"].get<int>(), e["args"]["name"].get<std::string>()).second);
    } else if (e["ph"] == "X") {
      REQUIRE(rows.contains(e["tid"].get<int>()));
      row_of[e["name"].get<std::string>()] = rows[e["tid"].get<int>()];
    }
  }
  CHECK(row_of.at("y").ends_with("/device:gpu:0"));
  CHECK(row_of.at("launch y").ends_with("/device:gpu:0 launches"));
  CHECK(row_of.at("copy in x").ends_with("/device:gpu:0 copies in"));
  CHECK(row_of.at("copy out y").ends_with("/device:gpu:0 copies out"));
}

TEST_CASE("timed work: steps that are measured and fail leave no event, and the engine none at all") {
  if (on_real_gpu()) return;
  std::shared_ptr<FakeRuntime> runtime;
  {
    TimedModel m;
    runtime = m.gpus.runtime;
    const auto trace = std::make_shared<Trace>();
    REQUIRE(m.run(trace).ok());
    const int64_t events = runtime->timed_events();
    for (int i = 0; i < 20; ++i) {
      runtime->fail(FakeCall::kLaunch, 1 + i % 2, Code::kInternal);
      CHECK_FALSE(m.run(trace).ok());
    }
    for (int i = 0; i < 20; ++i) {
      RunOptions options;
      options.trace = trace;
      options.deadline = std::chrono::microseconds(20 * i);
      (void)m.session.run({{m.x, Tensor::of<float>({1, 2, 3})}}, {m.y}, {m.add}, options).ok();
    }
    REQUIRE(m.run(trace).ok());
    // A step that is aborted may still hold its own while the next one has begun.
    CHECK(runtime->timed_events() <= 2 * events);
    runtime->lose(0, 3);
    CHECK_FALSE(m.run(trace).ok());
  }
  CHECK(runtime->timed_events() == 0);
}

}  // namespace troupe::testing
