// SPDX-License-Identifier: Apache-2.0
// Loops that several devices take part in: results, ends, and how far one device may be ahead of another.
#include <chrono>
#include <cmath>
#include <random>

#include "tests/actors/simulation.h"
#include "tests/engine/fixtures.h"
#include "tests/engine/random_loops.h"
#include "tests/repeats.h"
#include "troupe/control_flow.h"
#include "troupe/gradients.h"

using namespace troupe;

namespace {

/// Runs in any order of messages; the shortest way to many.
struct Orders : Simulation {
  Orders() : Simulation(3) {}
  void settle_at_random(std::mt19937& random) {
    while (waiting() > 0) carry_out(random() % waiting());
  }
};

/// A network of two layers with a state each, one layer a device, and `steps` steps of it.
struct TwoLayers {
  TwoLayers(const Scope& scope, const std::string& first, const std::string& second, int steps, int parallel = 10) {
    const auto on = [](const Scope& s, const std::string& device) { return device.empty() ? s : s.device(device); };
    const auto weights = [&](const std::string& device, float by) {
      std::vector<float> values(64);
      for (size_t i = 0; i < values.size(); ++i) values[i] = by * static_cast<float>(i * 37 % 11) - 0.3f;
      return on(scope, device).constant(Tensor::of<float>(std::span<const float>(values), Shape{8, 8}));
    };
    w = {weights(first, 0.05f), weights(first, 0.07f), weights(second, 0.06f), weights(second, 0.04f)};
    x = scope.constant(Tensor::of<float>({1, 2, 3, 4, 5, 6, 7, 8}, {1, 8}));
    const Output zero = scope.constant(*Tensor::zeros(DType::kFloat32, Shape{1, 8}));
    const auto layer = [](const Scope& s, Output in, Output state, Output a, Output b) {
      return s.op("Tanh", {s.op("AddV2", {s.op("MatMul", {in, a}), s.op("MatMul", {state, b})})});
    };
    const Outputs last = while_loop(
        scope, {scope.constant(0), zero, zero},
        [&](const Scope& s, const Outputs& v) {
          return s.op("Less", {v[0], s.constant(steps)});
        },
        [&](const Scope& s, const Outputs& v) {
          const Output lower = layer(on(s, first), x, v[1], w[0], w[1]);
          const Output upper = layer(on(s, second), lower, v[2], w[2], w[3]);
          return Outputs{s.op("AddV2", {v[0], s.constant(1)}), lower, upper};
        },
        {.parallel_iterations = parallel});
    if (!last.empty()) y = last[2];
  }
  Outputs w;
  Output x, y;
};

int64_t nodes_on(const Engine& engine, size_t device) { return engine.device_stats()[device].nodes; }

}  // namespace

TEST_CASE("a recurrent network with a layer on each device computes what one device does") {
  for (const int parallel : {1, 3, 10}) {
    std::vector<Tensor> expected;
    for (const bool shared : {false, true}) {
      TestEngine t({1, 1, 1});
      const TwoLayers net(t.scope, shared ? "/cpu:1" : "", shared ? "/cpu:2" : "", 40, parallel);
      const auto dws = gradients(t.scope, {net.y}, net.w);
      INFO((dws.ok() ? "" : dws.error().str()));
      REQUIRE(dws.ok());
      Outputs fetches = *dws;
      fetches.push_back(net.y);
      const auto result = t.session->run(std::vector<Feed>{}, fetches);
      INFO((result.ok() ? "" : result.error().str()));
      REQUIRE(result.ok());
      for (size_t i = 0; shared && i < fetches.size(); ++i) CHECK(expected[i].identical((*result)[i]));
      expected = *result;
      // Both layers ran where they were asked to.
      for (const size_t device : {1, 2}) CHECK((nodes_on(*t.engine, device) > 40 * 4) == shared);
      const auto again = t.session->run(std::vector<Feed>{}, fetches);
      REQUIRE(again.ok());
      for (size_t i = 0; i < fetches.size(); ++i) CHECK(expected[i].identical((*again)[i]));
    }
  }
}

TEST_CASE("random loops with their nodes anywhere give the same bits as on one device") {
  for (uint32_t seed = 0; seed < repeats(10); ++seed) {
    INFO("seed " << seed);
    std::vector<Tensor> expected;
    for (const bool placed : {false, true}) {
      TestEngine t({1, 1, 1});
      const RandomLoops random(t.scope, seed, placed, seed % 2);
      INFO((t.scope.ok() ? "" : t.scope.status().error().str()));
      REQUIRE(t.scope.ok());
      for (const GraphPasses& passes : {GraphPasses::none(), GraphPasses()}) {
        Session session(*t.engine, t.graph, {.passes = passes});
        RunOptions options;
        options.deadline = std::chrono::seconds(60);
        const auto result = session.run(std::vector<Feed>{}, random.outputs, {}, options);
        INFO((result.ok() ? "" : result.error().str()));
        REQUIRE(result.ok());
        for (size_t i = 0; i < expected.size(); ++i) CHECK(expected[i].identical((*result)[i]));
        expected = *result;
      }
    }
  }
}

namespace {

/// Those gradients of `ys` that there are, and which of the random loops' inputs each is by.
struct Gradients {
  Gradients(TestEngine& t, const Outputs& ys, const Outputs& xs) {
    const auto found = gradients(t.scope, ys, xs);
    INFO((found.ok() ? "" : found.error().str()));
    REQUIRE(found.ok());
    for (size_t i = 0; i < xs.size(); ++i) {
      if (!(*found)[i]) continue;
      outputs.push_back((*found)[i]);
      inputs.push_back(xs[i]);
    }
  }
  Outputs outputs, inputs;
};

std::vector<Tensor> values(TestEngine& t, const std::vector<Feed>& feeds, const Outputs& fetches) {
  RunOptions options;
  options.deadline = std::chrono::seconds(60);
  auto result = t.session->run(feeds, fetches, {}, options);
  INFO((result.ok() ? "" : result.error().str()));
  REQUIRE(result.ok());
  return std::move(*result);
}

/// The sum of all elements of `ys` where `moved` is added to an element of `input`.
double sum_beside(TestEngine& t, const Outputs& ys, Output input, size_t element, float moved) {
  const Tensor there = values(t, {}, {input})[0];
  std::vector<float> beside(there.data<float>(), there.data<float>() + there.elements());
  beside[element] += moved;
  double sum = 0;
  for (const Tensor& y : values(t, {{input, Tensor::of<float>(std::span<const float>(beside))}}, ys))
    for (int64_t i = 0; i < y.elements(); ++i) sum += y.data<float>()[i];
  return sum;
}

}  // namespace

TEST_CASE("gradients of random loops are the same wherever their nodes are") {
  int compared = 0;
  for (uint32_t seed = 100; seed < 106; ++seed) {
    INFO("seed " << seed);
    std::vector<Tensor> expected;
    for (const bool placed : {false, true}) {
      TestEngine t({1, 1, 1});
      const RandomLoops random(t.scope, seed, placed);
      REQUIRE(t.scope.ok());
      const std::vector<Tensor> found = values(t, {}, Gradients(t, random.outputs, random.inputs).outputs);
      for (size_t i = 0; i < expected.size(); ++i) CHECK(expected[i].identical(found[i]));
      compared += static_cast<int>(expected.size());
      expected = found;
    }
  }
  CHECK(compared > 0);
}

TEST_CASE("gradients of random loops, and the gradients of these, are what differences say") {
  int compared = 0;
  for (uint32_t seed = 100; seed < 100 + repeats(8); ++seed) {
    TestEngine t({1, 1, 1});
    const RandomLoops random(t.scope, seed, false);
    REQUIRE(t.scope.ok());
    Outputs ys = random.outputs;
    for (int order = 1; order <= 2 && !ys.empty(); ++order) {
      const Gradients by(t, ys, random.inputs);
      for (size_t k = 0; k < by.outputs.size(); ++k) {
        const Tensor found = values(t, {}, {by.outputs[k]})[0];
        for (size_t i = 0; i < static_cast<size_t>(found.elements()); ++i) {
          const auto slope = [&](float h) {
            return (sum_beside(t, ys, by.inputs[k], i, h) - sum_beside(t, ys, by.inputs[k], i, -h)) / (2 * h);
          };
          const double near = slope(1e-3f * static_cast<float>(order)), far = slope(2e-3f * static_cast<float>(order));
          if (std::abs(near - far) > 0.02 * (1 + std::abs(near))) continue;  // another branch is taken, or rounding
          INFO("seed " << seed << ", order " << order << ", by element " << i << " of " << by.inputs[k].name());
          CHECK(found.data<float>()[i] == Approx(near).margin(0.05).epsilon(0.05));
          ++compared;
        }
      }
      ys = by.outputs;
    }
  }
  CHECK(compared > 10);
}

TEST_CASE("loops on several devices end as they should, whatever the order of messages") {
  for (uint32_t seed = 0; seed < repeats(8); ++seed) {
    INFO("seed " << seed);
    std::vector<Tensor> expected;
    for (const bool placed : {false, true}) {
      Orders o;
      const RandomLoops random(o.scope, seed, placed, seed % 2);
      std::mt19937 order(seed);
      const StepRef a = o.start(random.outputs), b = o.start(random.outputs);
      o.settle_at_random(order);
      for (const StepRef& step : {a, b}) {
        REQUIRE(o.results.contains(step->id));
        const auto& result = o.results.at(step->id);
        INFO((result.ok() ? "" : result.error().str()));
        REQUIRE(result.ok());
        for (size_t i = 0; i < expected.size(); ++i) CHECK(expected[i].identical((*result)[i]));
        expected = *result;
      }
    }
  }
}

TEST_CASE("loops on several devices that are aborted at any message end once, and the next step is right") {
  for (uint32_t seed = 0; seed < repeats(20); ++seed) {
    INFO("seed " << seed);
    Orders o;
    const TwoLayers net(o.scope, "/cpu:1", "/cpu:2", 6, 2);
    std::mt19937 order(seed);
    const StepRef whole = o.start({net.y});
    o.settle_at_random(order);
    const StepRef victim = o.start({net.y});
    for (uint32_t before = order() % 40; before > 0 && o.waiting() > 0; --before) o.carry_out(order() % o.waiting());
    abort_step(victim, make_error(Code::kCancelled, "the test says so"), *o.directory);
    o.settle_at_random(order);
    REQUIRE(o.results.contains(victim->id));
    const StepRef next = o.start({net.y});
    o.settle_at_random(order);
    REQUIRE((o.results.at(whole->id).ok() && o.results.at(next->id).ok()));
    CHECK((*o.results.at(whole->id))[0].identical((*o.results.at(next->id))[0]));
  }
}

TEST_CASE("a device does not run away from another that takes part in its loop") {
  constexpr int kParallel = 3;
  Simulation s(2);
  const Output n = s.scope.constant(1000);
  const Scope there = s.scope.device("/cpu:1");
  const Outputs last = while_loop(
      s.scope, {s.scope.constant(0), there.constant(0)},
      [&](const Scope& in, const Outputs& v) {
        return in.op("Less", {v[0], n});
      },
      [&](const Scope& in, const Outputs& v) {
        const Output next = in.op("AddV2", {v[0], in.constant(1)});
        return Outputs{next, in.device("/cpu:1").op("AddV2", {v[1], next})};
      },
      {.parallel_iterations = kParallel});
  const StepRef step = s.start({last[1]});
  // Only the first device has turns, until it has to wait.
  const auto first = [&] { return s.carry_out(0); };
  CHECK(first() == "cpu:0 RunStep");
  CHECK(s.counters[0].nodes < 40 * (kParallel + 1));
  s.settle();
  REQUIRE(s.results.at(step->id).ok());
  CHECK((*s.results.at(step->id))[0].identical(Tensor::scalar(1000 * 1001 / 2)));
}

TEST_CASE("an error and a deadline in a loop on several devices end it on all, and the session goes on") {
  TestEngine t({1, 1, 1});
  const Output limit = t.placeholder(DType::kInt32, PartialShape::scalar()),
               divisor = t.placeholder(DType::kInt32, PartialShape::scalar(), "divisor");
  const Outputs last = while_loop(
      t.scope, {t.scope.constant(0), t.scope.constant(0), t.scope.constant(5)},
      [&](const Scope& s, const Outputs& v) {
        return s.op("NotEqual", {v[0], limit});
      },
      [&](const Scope& s, const Outputs& v) {
        const Output left = s.device("/cpu:1").op("Sub", {divisor, v[0]});
        const Output quotient = s.device("/cpu:2").named("quotient").op("FloorDiv", {v[2], left});
        return Outputs{s.op("AddV2", {v[0], s.constant(1)}), s.device("/cpu:1").op("AddV2", {v[1], quotient}), v[2]};
      });
  const auto run = [&](int to, int by, RunOptions options = {}) {
    return t.session->run({{limit, Tensor::scalar(to)}, {divisor, Tensor::scalar(by)}}, {last[1]}, {}, options);
  };
  for (int i = 0; i < 3; ++i) {
    const auto right = run(4, 10);
    INFO((right.ok() ? "" : right.error().str()));
    REQUIRE(right.ok());
    CHECK((*right)[0].data<int32_t>()[0] == 0);
    const auto failed = run(100, 50);
    REQUIRE_FALSE(failed.ok());
    CHECK_THAT(failed.error().node, Catch::EndsWith("quotient"));
    CHECK_THAT(failed.error().device, Catch::EndsWith("cpu:2"));
    RunOptions options;
    options.deadline = std::chrono::milliseconds(20);
    const auto late = run(-1, 2'000'000'000, options);
    REQUIRE_FALSE(late.ok());
    CHECK(late.error().code == Code::kDeadlineExceeded);
  }
}

TEST_CASE("a loop that is not entered is dead on every device") {
  TestEngine t({1, 1});
  const Output x = t.placeholder(DType::kFloat32, PartialShape::scalar());
  const Output y = cond(
      t.scope, t.scope.op("Less", {x, t.scope.constant(0.f)}),
      [&](const Scope& s) {
        return Outputs{while_loop(
            s, {s.constant(0.f), x},
            [](const Scope& in, const Outputs& v) {
              return in.op("Less", {v[0], in.constant(4.f)});
            },
            [](const Scope& in, const Outputs& v) {
              return Outputs{in.op("AddV2", {v[0], in.constant(1.f)}), in.device("/cpu:1").op("AddV2", {v[1], v[1]})};
            })[1]};
      },
      [&](const Scope& s) { return Outputs{s.op("Neg", {x})}; })[0];
  CHECK(t.value({{x, Tensor::scalar(-1.f)}}, y).data<float>()[0] == -16);
  CHECK(t.value({{x, Tensor::scalar(2.f)}}, y).data<float>()[0] == -2);
}
