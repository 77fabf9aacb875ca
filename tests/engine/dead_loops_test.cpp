// SPDX-License-Identifier: Apache-2.0
// Loops that are entered with a dead value while their counters live: they run, what they make of that value is dead,
// and the step ends.
#include <chrono>

#include "tests/engine/fixtures.h"
#include "troupe/control_flow.h"
#include "troupe/gradients.h"

using namespace troupe;

namespace {

/// x comes out of `no` or of `yes`, the other is dead.
struct Halves : TestEngine {
  explicit Halves(std::vector<int> devices = {1}) : TestEngine(std::move(devices)) {}

  Output x = placeholder(DType::kFloat32, PartialShape::scalar(), "x");
  Output p = placeholder(DType::kBool, PartialShape::scalar(), "p");
  const Node* sides = scope.node("Switch", {x, p});
  Output no = scope.op("Identity", {sides->out(0)}), yes = scope.op("Identity", {sides->out(1)});

  /// What a step of x = 3 makes of `fetch`, with either side.
  void check(Output fetch, float if_not, float if_so) {
    INFO((scope.ok() ? "" : scope.status().error().str()));
    REQUIRE(scope.ok());
    for (const bool which : {false, true, false}) {
      const auto result =
          session->run({{x, f(3)}, {p, Tensor::scalar(which)}}, {fetch}, {}, {.deadline = std::chrono::seconds(20)});
      INFO(which << (result.ok() ? "" : result.error().str()));
      REQUIRE(result.ok());
      CHECK((*result)[0].identical(f(which ? if_so : if_not)));
    }
  }
};

/// By `times` iterations 2 * value + more, beside a counter. The loop begins after `before`: its counter lives if that
/// does, whatever the others are.
Output doubled(const Scope& scope, int times, Output value, Output more, const char* device = "", int parallel = 10,
               Output before = {}) {
  const auto on = [&](const Scope& s) { return *device ? s.device(device) : s; };
  const Scope first = before ? scope.after({before}) : scope;
  const Outputs last = while_loop(
      scope, {first.constant(0), value},
      [&](const Scope& s, const Outputs& v) {
        return s.op("Less", {v[0], s.constant(times)});
      },
      [&](const Scope& s, const Outputs& v) {
        const Output twice = on(s).op("AddV2", {v[1], v[1]});
        return Outputs{s.op("AddV2", {v[0], s.constant(1)}), on(s).op("AddV2", {twice, more})};
      },
      {.parallel_iterations = parallel});
  return last.empty() ? Output() : last[1];
}

}  // namespace

TEST_CASE("a loop that begins with a dead value ends, and so does one that waits for it") {
  for (const int parallel : {1, 2, 10}) {
    for (const char* device : {"", "/cpu:1"}) {
      Halves t({1, 1});
      const Output one = t.scope.constant(1.f);
      const Output first = doubled(t.scope, 3, t.yes, one, device, parallel);  // 31
      t.check(t.scope.op("Merge", {t.scope.op("Neg", {t.no}), first}), -3, 31);
      const Output second = doubled(t.scope, 2, t.x, one, device, parallel, first);  // 15
      t.check(t.scope.op("Merge", {t.no, second}), 3, 15);
      const Output third = doubled(t.scope, 2, second, first, device, parallel);  // 4 * 15 + 3 * 31
      t.check(t.scope.op("Merge", {t.no, third}), 3, 153);
    }
  }
}

TEST_CASE("a dead value that is the same in all iterations leaves the counter of its loop alive") {
  for (const char* device : {"", "/cpu:1"}) {
    Halves t({1, 1});
    const Output y = doubled(t.scope, 4, t.x, t.yes, device);
    t.check(t.scope.op("Merge", {t.no, y}), 3, 16 * 3 + 15 * 3);
  }
}

TEST_CASE("of a loop with a dead value the others come out alive") {
  for (const char* device : {"/cpu:0", "/cpu:1"}) {
    Halves t({1, 1});
    const Outputs out = while_loop(
        t.scope, {t.scope.constant(0.f), t.yes, t.x},
        [](const Scope& s, const Outputs& v) {
          return s.op("Less", {v[0], s.constant(5.f)});
        },
        [&](const Scope& s, const Outputs& v) {
          const Scope there = s.device(device);
          return Outputs{s.op("AddV2", {v[0], s.constant(1.f)}), there.op("AddV2", {v[1], v[0]}),
                         there.op("AddV2", {v[2], v[0]})};
        });
    REQUIRE(out.size() == 3);
    t.check(out[0], 5, 5);
    t.check(out[2], 13, 13);
    t.check(t.scope.op("Merge", {t.no, out[1]}), 3, 13);
  }
}

TEST_CASE("a loop whose condition is dead does not run") {
  for (const char* device : {"/cpu:0", "/cpu:1"}) {
    Halves t({1, 1});
    const Outputs out = while_loop(
        t.scope, {t.x, t.yes},
        [](const Scope& s, const Outputs& v) {
          return s.op("Less", {v[1], s.constant(10.f)});
        },
        [&](const Scope& s, const Outputs& v) {
          return Outputs{s.device(device).op("AddV2", {v[0], v[1]}), s.op("AddV2", {v[1], s.constant(1.f)})};
        });
    REQUIRE(out.size() == 2);
    t.check(t.scope.op("Merge", {t.no, out[0]}), 3, 3 + 3 + 4 + 5 + 6 + 7 + 8 + 9);
  }
}

TEST_CASE("loops within loops may begin with what is dead in some iterations") {
  for (const char* device : {"", "/cpu:1"}) {
    Halves t({1, 1});
    // In every second iteration, but at most in three, the value is doubled, else made negative.
    const Outputs out = while_loop(
        t.scope, {t.scope.constant(0), t.x},
        [](const Scope& s, const Outputs& v) {
          return s.op("Less", {v[0], s.constant(6)});
        },
        [&](const Scope& s, const Outputs& v) {
          const Output odd = s.op("Equal", {s.op("FloorMod", {v[0], s.constant(2)}), s.constant(1)});
          const Node* which = s.node("Switch", {v[1], s.op("LogicalAnd", {odd, t.p})});
          const Output inner = doubled(s, 1, s.op("Identity", {which->out(1)}), s.constant(0.f), device);
          const Output after = doubled(s, 1, s.op("Identity", {which->out(1)}), inner, device, 10, inner);
          return Outputs{s.op("AddV2", {v[0], s.constant(1)}), s.op("Merge", {s.op("Neg", {which->out(0)}), after})};
        });
    REQUIRE(out.size() == 2);
    t.check(out[1], 3, -3 * 64);
  }
}

TEST_CASE("gradients flow through a loop whose value may be dead") {
  Halves t;
  const Output first = doubled(t.scope, 3, t.yes, t.yes);                  // (8 + 7) * x
  const Output second = doubled(t.scope, 2, t.yes, first, "", 10, first);  // 4 * x + 3 * first
  const Output y = t.scope.op("Merge", {t.scope.op("Neg", {t.no}), second});
  const auto dx = gradients(t.scope, {y}, {t.x});
  INFO((dx.ok() ? "" : dx.error().str()));
  REQUIRE(dx.ok());
  t.check(y, -3, 49 * 3);
  t.check((*dx)[0], -1, 49);
}

TEST_CASE("an Exit that lives in every iteration of its loop is an error") {
  Halves t;
  const auto in_frame = [&](Output value) {
    return t.scope.op("Enter", {value}, {{"frame_name", std::string("odd")}});
  };
  const auto open = [&](Output value) {
    NodeSpec spec{.op = "Merge", .name = t.graph.unique_name("open")};
    spec.inputs = {in_frame(value), Output()};
    return *t.graph.add(std::move(spec));
  };
  const Node* counter = open(t.scope.constant(0));
  const Output below =
      t.scope.op("Less", {counter->out(0), t.scope.op("Enter", {t.scope.constant(3)},
                                                      {{"frame_name", std::string("odd")}, {"is_constant", true}})});
  const Node* sides = t.scope.node("Switch", {counter->out(0), below});
  const Output one =
      t.scope.op("Enter", {t.scope.constant(1)}, {{"frame_name", std::string("odd")}, {"is_constant", true}});
  const Output next = t.scope.op("NextIteration", {t.scope.op("AddV2", {sides->out(1), one})});
  REQUIRE(t.graph.close_loop(*counter, next).ok());
  const Output twice = t.scope.named("twice").op("Exit", {t.scope.op("Neg", {counter->out(0)})});
  REQUIRE(t.scope.ok());
  const auto result = t.session->run(std::vector<Feed>{}, {twice}, {}, {.deadline = std::chrono::seconds(20)});
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().node == "twice");
  CHECK_THAT(result.error().message, Catch::Contains("two iterations"));
}
