// SPDX-License-Identifier: Apache-2.0
// Loops that one device carries out in a fixed order: which ones have one, and that their steps are as by counts. A
// traced step goes by counts.
#include <chrono>
#include <set>

#include "tests/actors/simulation.h"
#include "tests/engine/fixtures.h"
#include "tests/engine/random_loops.h"
#include "tests/repeats.h"
#include "troupe/control_flow.h"
#include "troupe/cost_model.h"
#include "troupe/trace.h"

using namespace troupe;

namespace {

using Seconds = std::chrono::seconds;

/// From `from` by 1 to `limit`, beside what `body` makes of the counter and another value.
template <class Body>
Outputs counted(const Scope& scope, Output limit, Output value, Body body, const std::string& name = "loop") {
  return while_loop(
      scope, {scope.constant(0), value},
      [&](const Scope& s, const Outputs& v) {
        return s.op("Less", {v[0], limit});
      },
      [&](const Scope& s, const Outputs& v) {
        return Outputs{s.op("AddV2", {v[0], s.constant(1)}), body(s, v[0], v[1])};
      },
      {.name = name});
}

/// The names of the loops that have an order in a plan over `devices` devices.
struct Planned : Simulation {
  explicit Planned(int devices = 1) : Simulation(devices) {}
  std::multiset<std::string> ordered(const Outputs& fetches) {
    INFO((scope.ok() ? "" : scope.status().error().str()));
    REQUIRE(scope.ok());
    KernelCache cache;
    auto plan = make_plan(graph, {}, fetches, {},
                          {.kernels = kernels, .devices = devices, .passes = GraphPasses::none()}, cache);
    INFO((plan.ok() ? "" : plan.error().str()));
    REQUIRE(plan.ok());
    std::multiset<std::string> names;
    for (const PartitionPlan& part : (*plan)->partitions)
      for (const FramePlan& frame : part.frames)
        if (!frame.order.empty()) names.insert(frame.name.substr(0, frame.name.find('/')));
    return names;
  }
};

const auto kAdd = [](const Scope& s, Output i, Output x) {
  return s.op("AddV2", {x, s.op("Cast", {i}, {{"DstT", DType::kFloat32}})});
};

/// A step of `fetches` by its order and by counts, several times: the first steps of a plan time their nodes.
void check_as_by_counts(TestEngine& t, const Outputs& fetches, const std::vector<Feed>& feeds = {},
                        GraphPasses passes = {}) {
  INFO((t.scope.ok() ? "" : t.scope.status().error().str()));
  REQUIRE(t.scope.ok());
  Session session(*t.engine, t.graph, {.passes = passes});
  std::vector<Tensor> expected;
  for (int i = 0; i < 8; ++i) {
    RunOptions options;
    options.deadline = Seconds(60);
    if (i % 4 == 0) options.trace = std::make_shared<Trace>();
    const auto result = session.run(feeds, fetches, {}, options);
    INFO((result.ok() ? "" : result.error().str()));
    REQUIRE(result.ok());
    for (size_t k = 0; k < expected.size(); ++k) CHECK(expected[k].identical((*result)[k]));
    expected = *result;
  }
}

}  // namespace

TEST_CASE("a loop has an order if all of it computes on one device") {
  using Names = std::multiset<std::string>;
  Planned p;
  const Output one = p.scope.constant(1.f), three = p.scope.constant(3);
  CHECK(p.ordered(counted(p.scope, three, one, kAdd)) == Names{"loop"});

  const auto nested = counted(p.scope, three, one,
                              [&](const Scope& s, Output i, Output x) { return counted(s, i, x, kAdd, "inner")[1]; });
  CHECK(p.ordered(nested).size() == 1);

  const auto branches = counted(p.scope, three, one, [&](const Scope& s, Output i, Output x) {
    return cond(
        s, s.op("Less", {i, s.constant(1)}), [&](const Scope& in) { return Outputs{in.op("Neg", {x})}; },
        [&](const Scope&) { return Outputs{x}; })[0];
  });
  CHECK(p.ordered(branches).empty());

  const Output v =
      p.scope.op("VarHandleOp", {},
                 {{"dtype", DType::kFloat32}, {"shape", PartialShape::scalar()}, {"shared_name", std::string("v")}});
  const auto variables = counted(p.scope, three, one, [&](const Scope& s, Output, Output x) {
    return s.op("AddV2", {x, s.op("ReadVariableOp", {v}, {{"dtype", DType::kFloat32}})});
  });
  CHECK(p.ordered(variables).empty());

  Planned two(2);
  const auto both = counted(two.scope, two.scope.constant(3), two.scope.constant(1.f),
                            [](const Scope& s, Output, Output x) { return s.device("/cpu:1").op("Neg", {x}); });
  CHECK(two.ordered(both).empty());
}

TEST_CASE("random loops give the same bits by their order and by counts") {
  for (uint32_t seed = 0; seed < repeats(30); ++seed) {
    INFO("seed " << seed);
    TestEngine t;
    const RandomLoops random(t.scope, seed, false, seed % 2);
    check_as_by_counts(t, random.outputs, {}, seed % 3 ? GraphPasses{} : GraphPasses::none());
  }
}

TEST_CASE("in a loop by its order, values that stay, change places, are read twice or not at all are right") {
  TestEngine t;
  const Output n = t.placeholder(DType::kInt32, PartialShape::scalar(), "n");
  const Output outside = t.scope.constant(Tensor::of<float>({1, 2, 3}));
  const Outputs last = while_loop(
      t.scope, {t.scope.constant(0), t.scope.op("Neg", {outside}), outside, outside, t.scope.constant(7.f)},
      [&](const Scope& s, const Outputs& v) {
        return s.op("Less", {v[0], n});
      },
      [&](const Scope& s, const Outputs& v) {
        const Output sum = s.op("AddV2", {v[1], outside});
        return Outputs{s.op("AddV2", {v[0], s.constant(1)}), v[2], sum, s.op("Mul", {sum, sum}), v[4]};
      });
  for (const int times : {0, 1, 2, 7}) check_as_by_counts(t, last, {{n, Tensor::scalar(times)}});
}

TEST_CASE("in a loop by its order the readers of an Identity read what it would hand on, wherever that comes from") {
  const auto same = [](const Scope& s, Output x, int times = 1) {
    for (int i = 0; i < times; ++i) x = s.op(i % 2 ? "StopGradient" : "Identity", {x});
    return x;
  };
  TestEngine t;
  const Output n = t.placeholder(DType::kInt32, PartialShape::scalar(), "n");
  const Output outside = t.scope.constant(Tensor::of<float>({1, 2, 3}));
  const Outputs last = while_loop(
      t.scope, {t.scope.constant(0), t.scope.op("Neg", {outside}), outside, t.scope.op("Abs", {outside}), outside},
      [&](const Scope& s, const Outputs& v) {
        return same(s, s.op("Less", {same(s, v[0]), same(s, n)}), 2);
      },
      [&](const Scope& s, const Outputs& v) {
        const Output sum = s.op("AddV2", {same(s, v[1], 2), same(s, outside, 3)});
        const Output late = s.after(std::vector<const Node*>{sum.node}).op("Identity", {v[4]});
        // Of v[3], what is changed in place is read beside it.
        const Output other = s.op("Mul", {s.op("Neg", {same(s, v[3])}), v[3]});
        return Outputs{same(s, s.op("AddV2", {same(s, v[0]), s.constant(1)})), same(s, v[2]), same(s, sum, 2), other,
                       late};
      });
  for (const int times : {0, 1, 2, 7}) check_as_by_counts(t, last, {{n, Tensor::scalar(times)}}, GraphPasses::none());

  // Nothing but Identities.
  const Output yes = t.scope.constant(Tensor::scalar(true)), no = t.scope.constant(Tensor::scalar(false));
  const Outputs ends = while_loop(
      t.scope, {yes, yes, no}, [&](const Scope& s, const Outputs& v) { return same(s, v[0]); },
      [&](const Scope& s, const Outputs& v) {
        return Outputs{same(s, v[1]), same(s, v[2]), same(s, v[2])};
      });
  check_as_by_counts(t, ends, {}, GraphPasses::none());
}

TEST_CASE("what is the same in every iteration of a loop by its order is computed in the first one") {
  TestEngine t;
  const Output n = t.placeholder(DType::kInt32, PartialShape::scalar(), "n");
  const Output weights = t.placeholder(DType::kFloat32, {2, 2}, "weights");
  const Outputs last = while_loop(
      t.scope, {t.scope.constant(0), t.scope.constant(Tensor::of<float>({1, -1}, {1, 2}))},
      [&](const Scope& s, const Outputs& v) {
        return s.op("Less", {v[0], s.op("Square", {n})});
      },
      [&](const Scope& s, const Outputs& v) {
        const Output once =
            s.named("once").op("Neg", {s.op("Transpose", {weights, s.constant(Tensor::of<int32_t>({1, 0}))})});
        const Output row = s.op("MatMul", {v[1], s.op("Tanh", {once})});
        // Read twice, and by one that would write into it.
        return Outputs{s.op("AddV2", {v[0], s.constant(1)}), s.op("AddV2", {row, s.op("Sum", {once, s.constant(0)})})};
      },
      {.name = "loop"});
  const std::vector<Feed> feeds = {{n, Tensor::scalar(2)}, {weights, Tensor::of<float>({1, 2, 3, 4}, {2, 2})}};
  check_as_by_counts(t, last, feeds);
  check_as_by_counts(t, last, feeds, GraphPasses::none());
  check_as_by_counts(t, last, {{n, Tensor::scalar(0)}, feeds[1]});

  // Timed as often as it runs.
  Session session(*t.engine, t.graph);
  for (int i = 0; i < 2; ++i) REQUIRE(session.run(feeds, last).ok());
  const CostModel costs = session.costs();
  const MeasuredCost* cost = costs.find("loop/body/once", "cpu");
  REQUIRE(cost);
  CHECK(cost->firings == 1);

  // Where nothing else is computed, a loop still lets others run and can be ended.
  const Output turns = while_loop(
      t.scope, {t.scope.constant(Tensor::scalar(true))}, [](const Scope&, const Outputs& v) { return v[0]; },
      [&](const Scope& s, const Outputs&) {
        return Outputs{s.op("Less", {n, s.constant(5)})};
      })[0];
  CHECK(t.session->run({{n, Tensor::scalar(9)}}, {turns}).ok());
  refused(t.session->run({{n, Tensor::scalar(1)}}, {turns}, {}, {.deadline = std::chrono::milliseconds(50)}),
          Code::kDeadlineExceeded);
}

TEST_CASE("of what a loop by its order computes in the first iteration only what is read again stays in memory") {
  constexpr int64_t kSide = 256, kBytes = kSide * kSide * int64_t{sizeof(float)};
  TestEngine t({1}, 5 * kBytes);
  const Output weights = t.placeholder(DType::kFloat32, {kSide, kSide}, "weights");
  const Output sum =
      counted(t.scope, t.scope.constant(3), t.scope.constant(0.f), [&](const Scope& s, Output, Output x) {
        Output made = weights;
        for (int i = 0; i < 8; ++i) made = s.op("Transpose", {made, s.constant(Tensor::of<int32_t>({1, 0}))});
        return s.op("AddV2", {x, s.op("Sum", {made, s.constant(Tensor::of<int32_t>({0, 1}))})});
      })[1];
  check_as_by_counts(t, {sum}, {{weights, *Tensor::zeros(DType::kFloat32, {kSide, kSide})}}, GraphPasses::none());
}

TEST_CASE("a node of a loop by its order that draws, prints or keeps a state does so in every iteration") {
  TestEngine t;
  const Output shape = t.scope.constant(Tensor::of<int32_t>({4}));
  const Output sum = counted(t.scope, t.scope.constant(3), t.scope.constant(Tensor::of<float>({0, 0, 0, 0})),
                             [&](const Scope& s, Output, Output x) {
                               return s.op("Sub", {s.op("RandomUniform", {shape}, {{"dtype", DType::kFloat32}}), x});
                             })[1];
  // a - (b - c), of which two would cancel out if they were drawn once.
  const Tensor drawn = t.value({}, sum), again = t.value({}, sum);
  CHECK_FALSE(drawn.identical(again));
  const Output once = counted(
      t.scope, t.scope.constant(1), t.scope.constant(Tensor::of<float>({0, 0, 0, 0})),
      [&](const Scope& s, Output, Output x) {
        return s.op("AddV2", {s.op("RandomUniform", {shape}, {{"dtype", DType::kFloat32}, {"seed", int64_t{3}}}), x});
      })[1];
  const Output thrice = counted(
      t.scope, t.scope.constant(3), t.scope.constant(Tensor::of<float>({0, 0, 0, 0})),
      [&](const Scope& s, Output, Output x) {
        return s.op("AddV2", {s.op("RandomUniform", {shape}, {{"dtype", DType::kFloat32}, {"seed", int64_t{3}}}), x});
      })[1];
  const float one = number(t.value({}, once)), three = number(t.value({}, thrice));
  CHECK(std::abs(three - 3 * one) > 1e-6f);
}

TEST_CASE("a fault in a loop by its order names the node, and the next step is right") {
  TestEngine t;
  const Output n = t.placeholder(DType::kInt32, PartialShape::scalar(), "n");
  const Output table = t.scope.constant(Tensor::of<float>({1, 2, 3}));
  const Output sum = counted(t.scope, n, t.scope.constant(0.f), [&](const Scope& s, Output i, Output x) {
    return s.op("AddV2", {x, s.named("looked_up").op("GatherV2", {table, i, s.constant(0)})});
  })[1];
  for (int round = 0; round < 6; ++round) {
    const auto result = t.session->run({{n, Tensor::scalar(5)}}, {sum}, {}, {.deadline = Seconds(20)});
    REQUIRE_FALSE(result.ok());
    CHECK_THAT(result.error().node, Catch::Contains("looked_up"));
    CHECK(number(t.value({{n, Tensor::scalar(3)}}, sum)) == 6);
  }

  const Output log = counted(t.scope, n, t.scope.constant(2.f),
                             [&](const Scope& s, Output, Output x) { return s.named("log").op("Log", {x}); })[1];
  RunOptions options;
  options.check_numerics = true;
  options.deadline = Seconds(20);
  for (int round = 0; round < 3; ++round) {
    const auto result = t.session->run({{n, Tensor::scalar(4)}}, {log}, {}, options);
    REQUIRE_FALSE(result.ok());
    CHECK_THAT(result.error().node, Catch::Contains("log"));
    CHECK(t.session->run({{n, Tensor::scalar(2)}}, {log}, {}, options).ok());
  }
}

TEST_CASE("a predicate that is not one value is an error in a loop by its order") {
  TestEngine t;
  const Output limit = t.placeholder(DType::kFloat32, PartialShape::unknown(), "limit");
  const Output last = while_loop(
      t.scope, {t.scope.constant(0.f)},
      [&](const Scope& s, const Outputs& v) {
        return s.op("Less", {v[0], limit});
      },
      [&](const Scope& s, const Outputs& v) {
        return Outputs{s.op("AddV2", {v[0], s.constant(1.f)})};
      })[0];
  REQUIRE(t.scope.ok());
  for (int round = 0; round < 3; ++round) {
    refused(t.session->run({{limit, Tensor::of<float>({3, 4})}}, {last}, {}, {.deadline = Seconds(20)}),
            Code::kInvalidArgument, "scalar");
    CHECK(number(t.value({{limit, f(3)}}, last)) == 3);
  }
}

TEST_CASE("loops that go on for ever leave the device to other steps, and end by a cancel") {
  TestEngine t;
  const Output x = t.placeholder(DType::kFloat32, PartialShape::scalar());
  const Output forever = while_loop(
      t.scope, {x},
      [](const Scope& s, const Outputs& v) {
        return s.op("Equal", {v[0], v[0]});
      },
      [](const Scope& s, const Outputs& v) { return Outputs{s.op("Neg", {v[0]})}; })[0];
  const Output much = t.scope.constant(*Tensor::zeros(DType::kFloat32, Shape{128, 128}));
  const Output heavy = while_loop(
      t.scope, {t.scope.op("AddV2", {much, x})},
      [](const Scope& s, const Outputs& v) {
        return s.op("LessEqual", {s.op("Sum", {v[0], s.constant(Tensor::of<int32_t>({0, 1}))}), s.constant(1e30f)});
      },
      [&](const Scope& s, const Outputs& v) {
        return Outputs{s.op("MatMul", {v[0], much})};
      })[0];
  const Output sum = counted(t.scope, t.scope.constant(50), x, kAdd)[1];
  CancelToken cancel;
  RunOptions options;
  options.cancel = cancel;
  options.deadline = Seconds(60);
  std::vector<std::future<RunResult>> endless;
  for (int i = 0; i < 2; ++i)
    for (const Output& fetch : {forever, heavy})
      endless.push_back(std::async(std::launch::async, [&t, &options, x, fetch] {
        return t.session->run({{x, f(1)}}, {fetch}, {}, options);
      }));
  for (int i = 0; i < 20; ++i) CHECK(number(t.value({{x, f(2)}}, sum)) == 2 + 49 * 25);
  cancel.cancel();
  for (auto& result : endless) refused(result.get(), Code::kCancelled);
  CHECK(number(t.value({{x, f(3)}}, sum)) == 3 + 49 * 25);
}

TEST_CASE("a step that is timed measures what comes after long loops as well") {
  const bool by_counts = GENERATE(false, true);
  TestEngine t;
  const Output n = t.placeholder(DType::kInt32, PartialShape::scalar(), "n");
  const Output x = t.placeholder(DType::kFloat32, PartialShape::scalar());
  Output y = x;
  for (const char* name : {"first", "second"}) {
    y = counted(
        t.scope, n, y, [](const Scope& s, Output, Output value) { return s.named("neg").op("Neg", {value}); }, name)[1];
    y = t.scope.named(std::string("after_") + name).op("Sin", {y});
  }
  REQUIRE(t.scope.ok());
  SessionOptions options;
  if (by_counts) options.priority = [](const Node&) { return 1; };
  Session session(*t.engine, t.graph, options);
  for (int i = 0; i < 4; ++i) REQUIRE(session.run({{n, Tensor::scalar(300)}, {x, f(1)}}, {y}).ok());
  const CostModel costs = session.costs();
  for (const char* name : {"after_first", "after_second"}) {
    INFO(name);
    const MeasuredCost* cost = costs.find(name, "cpu");
    REQUIRE(cost);
    CHECK(cost->steps == 3);
    CHECK(cost->firings == 1);
  }
  for (const char* name : {"first/body/neg", "second/body/neg"}) {
    INFO(name);
    const MeasuredCost* cost = costs.find(name, "cpu");
    REQUIRE(cost);
    CHECK(cost->firings == 300);
    CHECK(cost->steps < 100);  // the first of each step
  }
}

TEST_CASE("a loop begins when the last value that it is entered with has come") {
  TestEngine t;
  const Output queue = t.queue("q", DType::kFloat32);
  const Output late = t.scope.op(
      "Reshape", {t.dequeue(queue, DType::kFloat32), t.scope.constant(*Tensor::zeros(DType::kInt32, Shape{0}))});
  const Node* put = t.scope.node("QueueEnqueueV2", {queue, t.scope.constant(5.f)});
  const Output sum =
      counted(t.scope, t.scope.constant(4), t.scope.constant(1.f), [&](const Scope& s, Output, Output x) {
        return s.op("AddV2", {x, late});
      })[1];
  REQUIRE(t.scope.ok());
  for (int round = 0; round < 6; ++round) {
    auto result = std::async(std::launch::async,
                             [&] { return t.session->run(std::vector<Feed>{}, {sum}, {}, {.deadline = Seconds(20)}); });
    REQUIRE(t.session->run({}, {}, {put}).ok());
    const RunResult got = result.get();
    INFO((got.ok() ? "" : got.error().str()));
    REQUIRE(got.ok());
    CHECK(number((*got)[0]) == 21);
  }
}

TEST_CASE("a loop of which one value is entered with what comes out of it ends") {
  TestEngine t;
  const auto enter = [&](Output value, bool constant = false) {
    return t.scope.op("Enter", {value}, {{"frame_name", std::string("odd")}, {"is_constant", constant}});
  };
  const auto open = [&](Output value) {
    NodeSpec spec{.op = "Merge", .name = t.graph.unique_name("open")};
    spec.inputs = {enter(value), Output()};
    return *t.graph.add(std::move(spec));
  };
  const Output n = t.placeholder(DType::kInt32, PartialShape::scalar(), "n");
  const Node* counter = open(t.scope.constant(0));
  const Output below = t.scope.op("LoopCond", {t.scope.op("Less", {counter->out(0), enter(n, true)})});
  const Node* sides = t.scope.node("Switch", {counter->out(0), below});
  REQUIRE(t.graph
              .close_loop(
                  *counter,
                  t.scope.op("NextIteration", {t.scope.op("AddV2", {sides->out(1), enter(t.scope.constant(1), true)})}))
              .ok());
  const Output counts = t.scope.op("Exit", {sides->out(0)});
  const Node* second = open(t.scope.op("Neg", {counts}));
  const Node* of_second = t.scope.node("Switch", {second->out(0), below});
  REQUIRE(t.graph.close_loop(*second, t.scope.op("NextIteration", {t.scope.op("Neg", {of_second->out(1)})})).ok());
  const Output out = t.scope.op("Exit", {of_second->out(0)});
  INFO((t.scope.ok() ? "" : t.scope.status().error().str()));
  REQUIRE(t.scope.ok());
  const auto result = t.session->run({{n, Tensor::scalar(3)}}, {counts, out}, {}, {.deadline = Seconds(20)});
  INFO((result.ok() ? "" : result.error().str()));
  REQUIRE(result.ok());
  CHECK((*result)[0].data<int32_t>()[0] == 3);
  CHECK((*result)[1].data<int32_t>()[0] == 3);
}

TEST_CASE("a loop by its order changes values in place") {
  constexpr int64_t kMiB = 1 << 20;
  TestEngine t({1}, 6 * kMiB);
  const Output x = t.placeholder(DType::kFloat32, PartialShape({kMiB / 4}));
  const Output y = counted(t.scope, t.scope.constant(100), x, [](const Scope& s, Output, Output value) {
    return s.op("Neg", {s.op("AddV2", {value, s.constant(1.f)})});
  })[1];
  for (int round = 0; round < 3; ++round)
    CHECK(t.value({{x, *Tensor::zeros(DType::kFloat32, Shape{kMiB / 4})}}, y).data<float>()[kMiB / 4 - 1] == 0);
}
