// SPDX-License-Identifier: Apache-2.0
// Traces and measured costs of steps that several tasks run: what one engine reports of the same step, with the
// devices' numbers and on one clock.
#include "tests/actors/fake_cluster.h"
#include "tests/actors/socket_cluster.h"
#include "tests/engine/fixtures.h"
#include "tests/engine/random_graph.h"
#include "tests/engine/random_loops.h"
#include "tests/repeats.h"
#include "troupe/cost_model.h"
#include "troupe/trace_file.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

using namespace troupe;

namespace {

using EventKind = TraceEvent::Kind;

/// The nodes that computed or asked something, by device, in whatever order. How devices follow loops and branches, and
/// what they send one another for that, is the planner's.
std::multiset<std::string> computed(const std::vector<TraceEvent>& events) {
  std::multiset<std::string> out;
  for (const TraceEvent& e : events) {
    REQUIRE(e.node);
    const std::string& op = e.node->op().name();
    const bool follows = op == "Switch" || op == "Merge" || op == "Enter" || op == "Exit" || op == "NextIteration" ||
                         op == "LoopCond" || op == "ControlTrigger";
    if (follows || e.kind == EventKind::kSend || e.kind == EventKind::kReceive) continue;
    out.insert(fmt::format("{} {} on {}", static_cast<int>(e.kind), e.node->name(), e.device));
  }
  return out;
}

/// What is received was sent before, by another device, where clocks are as far apart as `apart_ns`.
void check_transfers(const std::vector<TraceEvent>& events, int64_t apart_ns) {
  for (const TraceEvent& e : events) {
    if (e.kind != EventKind::kReceive) continue;
    INFO(e.node->name() << " on " << e.device);
    CHECK(std::ranges::any_of(events, [&](const TraceEvent& s) {
      return s.kind == EventKind::kSend && s.node == e.node && s.device != e.device &&
             s.begin_ns <= e.end_ns + apart_ns;
    }));
  }
}

std::vector<TraceEvent> traced(Session& session, const Named& feeds, const NameList& fetches) {
  const auto trace = std::make_shared<Trace>();
  const auto result = session.run(feeds, fetches, {}, {.trace = trace});
  INFO((result.ok() ? "" : result.error().str()));
  REQUIRE(result.ok());
  return trace->take();
}

/// The nodes that a model of costs knows, and how often each runs in a step.
std::map<std::string, double> known(const Graph& graph, const CostModel& costs) {
  std::map<std::string, double> out;
  for (int id = 0; id < graph.size(); ++id)
    if (const MeasuredCost* cost = costs.find(graph.node(id).name(), "cpu")) {
      CHECK(cost->ns >= 0);
      out[fmt::format("{} {}", graph.node(id).name(), cost->bytes)] = cost->firings;
    }
  return out;
}

}  // namespace

TEST_CASE("traces and costs of steps over tasks are those of one engine") {
  for (uint32_t seed = 1; seed <= static_cast<uint32_t>(repeats(20)); ++seed) {
    INFO("seed " << seed);
    TestEngine t;
    Outputs fetches;
    Named feeds;
    if (seed % 2) {
      RandomGraph random(t, seed);
      fetches = random.build();
      feeds = by_name(random.feeds());
    } else {
      fetches = RandomLoops(t.scope, seed, false).outputs;
    }
    REQUIRE(t.scope.ok());
    FakeCluster cluster(seed);
    Both both(cluster, t.graph, seed);
    // The first run of a plan tells no costs.
    for (const auto& session : {both.cut.get(), both.whole.get()}) REQUIRE(session->run(feeds, names(fetches)).ok());
    CHECK(both.cut->costs().empty());
    const auto events = traced(*both.cut, feeds, names(fetches));
    std::vector<std::string> differences;
    std::ranges::set_symmetric_difference(computed(events), computed(traced(*both.whole, feeds, names(fetches))),
                                          std::back_inserter(differences));
    CHECK_THAT(differences, Catch::Equals(std::vector<std::string>()));
    check_transfers(events, 0);
    for (const TraceEvent& e : events) {
      CHECK((e.kind == EventKind::kAnswer || e.end_ns >= e.begin_ns));
      CHECK(e.step == events[0].step);
    }
    CHECK(known(both.cut_graph, both.cut->costs()) == known(both.whole_graph, both.whole->costs()));
    CHECK_FALSE(both.cut->costs().empty());
  }
}

TEST_CASE("costs come without a trace, from the runs that are timed, and stay when a plan goes") {
  FakeCluster cluster;
  Graph graph(cluster.client->ops());
  const Scope scope(graph), far = scope.device("/job:worker/task:1");
  const Output x = scope.named("x").op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{2}}});
  const Output y = far.named("y").op("Tanh", {x}), z = far.named("z").op("Sqrt", {y});
  REQUIRE(scope.ok());
  Session session(*cluster.client, graph, {.timed_steps = 2, .plans = 1});
  const auto run = [&](Output fetch) { REQUIRE(session.run({{x, Tensor::of<float>({1, 2})}}, {fetch}).ok()); };
  run(y);
  CHECK_FALSE(session.costs().find("y", "cpu"));
  for (int i = 0; i < 5; ++i) run(y);
  const CostModel first = session.costs();
  REQUIRE(first.find("y", "cpu"));
  CHECK(first.find("y", "cpu")->bytes == 8);
  CHECK(first.find("y", "cpu")->steps == 2);
  run(z);  // another plan takes the place of the first
  REQUIRE(session.costs().find("y", "cpu"));
  CHECK(session.costs().find("y", "cpu")->steps == 2);
}

TEST_CASE("a trace over sockets is one trace, with the devices' names, and its file opens") {
  SocketCluster tasks(2);
  const auto engine = tasks.client();
  Graph graph(engine->ops());
  const Scope scope(graph);
  const Output v = scope.device("/job:worker/task:1")
                       .named("v")
                       .op("VarHandleOp", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{}}});
  const Node* const init = scope.device("/job:worker/task:1").node("AssignVariableOp", {v, scope.constant(1.f)});
  const Output read =
      scope.device("/job:worker/task:1").named("read").op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}});
  const Output twice = scope.device("/job:worker/task:0").named("twice").op("AddV2", {read, read});
  const Output back = scope.device("/job:worker/task:1").named("back").op("Tanh", {twice});
  REQUIRE(scope.ok());
  Session session(*engine, graph);
  REQUIRE(session.run(init).ok());
  const auto now = [] {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  TemporaryDirectory directory;
  auto file = TraceFile::create(directory.file("t.json"), *engine);
  REQUIRE(file.ok());
  for (int i = 0; i < 5; ++i) {
    const int64_t before = now();
    const auto events = traced(session, {}, names({back}));
    const int64_t after = now();
    std::multiset<std::string> seen;
    for (const TraceEvent& e : events) {
      REQUIRE(e.node);
      CHECK(e.node == graph.find(e.node->name()));
      CHECK(e.begin_ns >= before);
      CHECK(std::max(e.begin_ns, e.end_ns) <= after);
      seen.insert(fmt::format("{} {} {}", static_cast<int>(e.kind), e.node->name(), engine->devices()[e.device]));
    }
    const std::string first = "/job:worker/replica:0/task:0/device:cpu:0",
                      second = "/job:worker/replica:0/task:1/device:cpu:0";
    CHECK(seen == std::multiset<std::string>{"3 read " + second, "4 read " + second, "1 read " + second,
                                             "2 read " + first, "0 twice " + first, "1 twice " + first,
                                             "2 twice " + second, "0 back " + second});
    // All clocks are one here; each way's estimate is as wrong as half a round trip.
    check_transfers(events, after - before);
    REQUIRE((*file)->write(events).ok());
  }
  REQUIRE((*file)->close().ok());
  std::ifstream in(directory.file("t.json"));
  int slices = 0;
  for (const auto& e : nlohmann::json::parse(in)) slices += e["ph"] == "X";
  CHECK(slices == 5 * 6);
  CHECK(session.costs().find("twice", "cpu"));
  CHECK(session.costs().find("back", "cpu"));
}
