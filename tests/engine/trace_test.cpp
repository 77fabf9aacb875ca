// SPDX-License-Identifier: Apache-2.0
// Traces: what the devices of a run report, and the file a viewer opens.
#include "troupe/trace_file.h"

#include <algorithm>
#include <fstream>
#include <future>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/engine/fixtures.h"
#include "tests/io/temporary_directory.h"

namespace troupe {
namespace {

using Kind = TraceEvent::Kind;

/// A variable read on one device and doubled on another.
struct Traced : TestEngine {
  Traced() : TestEngine({1, 1}) {
    const Output handle = variable("v", DType::kFloat32, {2});
    assign = scope.node("AssignVariableOp", {handle, scope.constant(Tensor::of<float>({1, 2}))});
    const Output value = scope.op("ReadVariableOp", {handle}, {{"dtype", DType::kFloat32}});
    twice = scope.device("/cpu:1").named("twice").op("AddV2", {value, value});
    REQUIRE(session->run(std::vector<Feed>{}, {}, {assign}).ok());
  }
  std::vector<TraceEvent> events() {
    const auto trace = std::make_shared<Trace>();
    REQUIRE(session->run(std::vector<Feed>{}, {twice}, {}, {.trace = trace}).ok());
    return trace->take();
  }
  const Node* assign = nullptr;
  Output twice;
};

TEST_CASE("a trace has every node that runs once, with its device and time") {
  Traced t;
  std::multiset<std::string> seen;
  for (const TraceEvent& e : t.events()) {
    REQUIRE(e.node);
    seen.insert(fmt::format("{} {} cpu:{}", static_cast<int>(e.kind), e.node->op().name(), e.device));
    CHECK((e.kind == Kind::kAnswer || e.end_ns >= e.begin_ns));
    CHECK(e.begin_ns > 0);
  }
  // A handle is the same in every step, so the plan has it.
  CHECK(seen == std::multiset<std::string>{"3 ReadVariableOp cpu:0", "4 ReadVariableOp cpu:0", "1 ReadVariableOp cpu:0",
                                           "2 ReadVariableOp cpu:1", "0 AddV2 cpu:1"});
}

TEST_CASE("each answer of a trace has its question, on simulated devices too") {
  EngineOptions options{.cpu_threads = {1}};
  options.sim.devices.assign(2, DeviceRates{.launch_ns = 100});
  auto engine = Engine::create(std::move(options)).value();
  Graph graph(engine->ops());
  const Scope scope(graph);
  for (const std::string device : {"/cpu:0", "/device:sim:0", "/device:sim:1"}) {
    INFO(device);
    const Scope s = scope.device(device);
    const Output handle =
        s.op("VarHandleOp", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{2}}, {"shared_name", device}});
    const Node* assign = s.node("AssignVariableOp", {handle, s.constant(Tensor::of<float>({1, 2}))});
    const Output value = s.after(std::vector{assign}).op("ReadVariableOp", {handle}, {{"dtype", DType::kFloat32}});
    REQUIRE(scope.ok());
    Session session(*engine, graph);
    const auto trace = std::make_shared<Trace>();
    REQUIRE(session.run({}, {value}, {}, {.trace = trace}).ok());
    std::map<const Node*, std::pair<int, int64_t>> asked;
    int answers = 0;
    for (const TraceEvent& e : trace->take()) {
      auto& [open, at] = asked[e.node];
      if (e.kind == Kind::kAsk) ++open, at = e.begin_ns;
      if (e.kind != Kind::kAnswer) continue;
      ++answers;
      CHECK(--open == 0);
      CHECK(e.begin_ns >= at);
    }
    CHECK(answers == 2);
    for (const auto& [node, question] : asked) CHECK(question.first == 0);
  }
}

TEST_CASE("a run without a trace costs and reports nothing") {
  Traced t;
  const auto trace = std::make_shared<Trace>();
  REQUIRE(t.session->run(std::vector<Feed>{}, {t.twice}).ok());
  CHECK(trace->take().empty());
}

TEST_CASE("a trace's file is JSON with slices on the devices' threads") {
  Traced t;
  TemporaryDirectory directory;
  const std::string path = directory.file("t.json");
  {
    auto file = TraceFile::create(path, *t.engine);
    REQUIRE(file.ok());
    REQUIRE((*file)->write(t.events()).ok());
    REQUIRE((*file)->write(t.events()).ok());
    REQUIRE((*file)->close().ok());
  }
  std::ifstream in(path);
  const auto json = nlohmann::json::parse(in);
  REQUIRE(json.is_array());
  std::multiset<std::string> phases;
  std::set<int> steps;
  for (const auto& e : json) {
    phases.insert(e["ph"].get<std::string>());
    if (e["ph"] == "M") continue;
    CHECK(e["ts"].get<double>() >= 0);
    steps.insert(e["args"]["step"].get<int>());
    if (e["name"] == "twice") CHECK((e["cat"] == "AddV2" && e["tid"] == 1 && e["dur"].get<double>() >= 0));
  }
  CHECK(phases.count("M") == 3);
  CHECK(phases.count("X") == 6);
  CHECK(phases.count("b") == 2);
  CHECK(phases.count("e") == 2);
  CHECK(steps.size() == 2);
  CHECK(TraceFile::create("/nowhere/t.json", *t.engine).error().code == Code::kNotFound);
}

/// The events of a file, without those that only name things.
nlohmann::json written(const std::string& path) {
  std::ifstream in(path);
  nlohmann::json events;
  for (const auto& e : nlohmann::json::parse(in))
    if (e["ph"] != "M") events.push_back(e);
  return events;
}

TEST_CASE("a trace's file takes events in any order, of any time and without a node") {
  TestEngine t;
  TemporaryDirectory directory;
  const std::string path = directory.file("t.json");
  auto file = TraceFile::create(path, *t.engine).value();
  const auto at = [](int64_t begin, int64_t end) {
    return TraceEvent{.kind = Kind::kRun, .begin_ns = begin, .end_ns = end};
  };
  REQUIRE(file->write({}).ok());
  const TraceEvent first[] = {at(5000, 5001), at(2000, 2500)};
  REQUIRE(file->write(first).ok());
  // Of a run that began earlier and ended later.
  const TraceEvent second[] = {at(500, 9001), at(1999, 2000), at(INT64_MIN / 2, INT64_MAX / 4)};
  REQUIRE(file->write(second).ok());
  REQUIRE(file->close().ok());
  const auto events = written(path);
  REQUIRE(events.size() == 5);
  const auto times = [&](size_t i) { return std::pair(events[i]["ts"].get<double>(), events[i]["dur"].get<double>()); };
  CHECK(times(0) == std::pair(3., 0.001));
  CHECK(times(1) == std::pair(0., 0.5));
  CHECK(times(2) == std::pair(-1.5, 8.501));
  CHECK(times(3) == std::pair(-0.001, 0.001));
  CHECK(times(4).first < -1e15);
}

TEST_CASE("a trace of simulated devices has their clock's times, from its start on") {
  auto engine = Engine::create({.cpu_threads = {1}, .sim = {.devices = {DeviceRates{}}}}).value();
  Graph graph(engine->ops());
  const Scope scope(graph);
  const Output x = scope.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{}}});
  const Output y = scope.op("Exp", {x});
  Session session(*engine, graph, {.default_device = "/sim:0"});
  TemporaryDirectory directory;
  const std::string path = directory.file("t.json");
  auto file = TraceFile::create(path, *engine).value();
  std::vector<int64_t> begins;
  for (int i = 0; i < 2; ++i) {
    const auto trace = std::make_shared<Trace>();
    const int64_t before = engine->sim_now_ns();
    REQUIRE(session.run({{x, Tensor::scalar(1.f)}}, y, {}, {.trace = trace}).ok());
    const auto events = trace->take();
    REQUIRE(events.size() == 1);
    CHECK(events[0].begin_ns == before);
    CHECK(events[0].end_ns == engine->sim_now_ns());
    begins.push_back(before);
    REQUIRE(file->write(events).ok());
  }
  REQUIRE(file->close().ok());
  CHECK(begins[0] == 0);
  const auto events = written(path);
  REQUIRE(events.size() == 2);
  for (size_t i = 0; i < 2; ++i) CHECK(events[i]["ts"].get<double>() == Approx(static_cast<double>(begins[i]) / 1000));
}

TEST_CASE("a trace's nodes are there when its session and its plans have gone") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, {8});
  Output y = x;
  for (const char* op : {"Exp", "Neg", "Tanh"}) y = t.scope.op(op, {y});  // become one node
  const auto trace = std::make_shared<Trace>();
  t.session = std::make_unique<Session>(*t.engine, t.graph, SessionOptions{.passes = GraphPasses::all(), .plans = 1});
  REQUIRE(t.session->run({{x, Tensor::zeros(DType::kFloat32, {8}).value()}}, y, {}, {.trace = trace}).ok());
  REQUIRE(t.session->run(t.scope.constant(1.f)).ok());  // its plan takes the place of the other
  TemporaryDirectory directory;
  auto file = TraceFile::create(directory.file("t.json"), *t.engine).value();
  t.session.reset();
  const auto events = trace->take();
  REQUIRE(events.size() == 1);
  CHECK(events[0].node->name() == "Tanh");
  CHECK(events[0].node->op().name() != "Tanh");
  REQUIRE(file->write(events).ok());
  REQUIRE(file->close().ok());
}

TEST_CASE("the events of each device are in order, of runs at once too, and each is taken once") {
  Traced t;
  const auto trace = std::make_shared<Trace>();
  constexpr int kRuns = 200;
  std::vector<std::future<RunResult>> runs;
  std::vector<TraceEvent> events;
  const auto take = [&] {
    for (const TraceEvent& e : trace->take()) events.push_back(e);
  };
  for (int i = 0; i < kRuns; ++i) {
    runs.push_back(t.session->run_future({}, {t.twice}, {}, {.trace = trace}));
    if (i % 10 == 0) take();
  }
  for (auto& run : runs) REQUIRE(run.get().ok());
  take();
  std::map<int64_t, int> of_step;
  int64_t last[2] = {0, 0};
  for (const TraceEvent& e : events) {
    ++of_step[e.step];
    CHECK(e.begin_ns >= last[e.device]);
    last[e.device] = e.begin_ns;
  }
  CHECK(of_step.size() == kRuns);
  for (const auto& [step, count] : of_step) CHECK(count == 5);
}

TEST_CASE("a trace's file says when the disk is full") {
  TestEngine t;
  auto file = TraceFile::create("/dev/full", *t.engine);
  Status status = file.status();
  const std::vector<TraceEvent> many(10'000);
  if (status.ok()) status = (*file)->write(many);
  if (status.ok()) status = (*file)->close();
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().code == Code::kResourceExhausted);
}

TEST_CASE("a trace's file may be closed twice, and takes nothing afterwards") {
  TestEngine t;
  TemporaryDirectory directory;
  const std::string path = directory.file("t.json");
  auto file = TraceFile::create(path, *t.engine).value();
  const TraceEvent event[] = {{.begin_ns = 1, .end_ns = 2}};
  REQUIRE(file->write(event).ok());
  REQUIRE(file->close().ok());
  CHECK(file->close().ok());
  CHECK_FALSE(file->write(event).ok());
  CHECK(written(path).size() == 1);
}

}  // namespace
}  // namespace troupe
