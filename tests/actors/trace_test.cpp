// SPDX-License-Identifier: Apache-2.0
// Traces: what the devices of a run report, and the file a viewer opens.
#include "troupe/trace.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/actors/fixtures.h"
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

TEST_CASE("a trace has every node of the run once, with its device and time") {
  Traced t;
  std::multiset<std::string> seen;
  for (const TraceEvent& e : t.events()) {
    REQUIRE(e.node);
    seen.insert(fmt::format("{} {} cpu:{}", static_cast<int>(e.kind), e.node->op().name(), e.device));
    CHECK((e.kind == Kind::kAnswer || e.end_ns >= e.begin_ns));
    CHECK(e.begin_ns > 0);
  }
  CHECK(seen == std::multiset<std::string>{"0 VarHandleOp cpu:0", "3 ReadVariableOp cpu:0", "4 ReadVariableOp cpu:0",
                                           "1 ReadVariableOp cpu:0", "2 ReadVariableOp cpu:1", "0 AddV2 cpu:1"});
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
  CHECK(phases.count("X") == 8);
  CHECK(phases.count("b") == 2);
  CHECK(phases.count("e") == 2);
  CHECK(steps.size() == 2);
  CHECK(TraceFile::create("/nowhere/t.json", *t.engine).error().code == Code::kNotFound);
}

}  // namespace
}  // namespace troupe
