// SPDX-License-Identifier: Apache-2.0
// Optimizers, clipping and schedules against numbers worked out by hand.
#include "tests/nn/fixture.h"

#include <cmath>

namespace troupe::nn {
namespace {

// Values of a 1x1 variable that starts at 1 with loss 2 w^2 (gradient 4 w), after each of `steps` updates.
std::vector<float> follow(const Optimizer& optimizer, int steps) {
  Fixture f;
  const Output w = f.variables.read(f.s, "w", {1, 1}, ones());
  const Output loss = sum_all(f.s, f.s.op("Mul", {f.s.op("Square", {w}), f.s.constant(2.f)}));
  const Node* update = minimize(f.s, f.variables, optimizer, loss);
  f.initialise();
  std::vector<float> path;
  for (int i = 0; i < steps; ++i) {
    f.run({}, {update});
    path.push_back(f.variable("w").data<float>()[0]);
  }
  CHECK(f.variable("global_step").data<int64_t>()[0] == steps);
  return path;
}

void check_path(const std::vector<float>& got, const std::vector<double>& wanted) {
  REQUIRE(got.size() == wanted.size());
  for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(wanted[i]).epsilon(1e-5).margin(1e-6));
}

TEST_CASE("each optimizer follows its rule") {
  const Schedule rate = constant_rate(0.1f);
  check_path(follow(sgd(rate), 2), {0.6, 0.36});
  // a = 4, w = .6; a = .9 * 4 + 2.4 = 6, w = 0
  check_path(follow(momentum(rate, 0.9f), 2), {0.6, 0.0});
  // w -= rate * (g + .5 a): a = 4, w = 1 - .1 * 6 = .4; a = 2 + 1.6 = 3.6, w = .4 - .1 * (1.6 + 1.8) = .06
  check_path(follow(momentum(rate, 0.5f, true), 2), {0.4, 0.06});
  {
    double w = 1, m = 0, v = 0;
    std::vector<double> wanted;
    for (int t = 1; t <= 3; ++t) {
      const double g = 4 * w;
      m = 0.9 * m + 0.1 * g, v = 0.999 * v + 0.001 * g * g;
      w -= 0.1 * std::sqrt(1 - std::pow(0.999, t)) / (1 - std::pow(0.9, t)) * m / (std::sqrt(v) + 1e-8);
      wanted.push_back(w);
    }
    check_path(follow(adam(rate), 3), wanted);
  }
  {
    const double first = 1 - 0.1 * 4 / (std::sqrt(0.1 + 16) + 1e-7);
    const double second = first - 0.1 * 4 * first / (std::sqrt(16.1 + 16 * first * first) + 1e-7);
    check_path(follow(adagrad(rate), 2), {first, second});
  }
  {
    const double first = 1 - 0.1 * 4 / std::sqrt(0.1 * 16 + 1e-7);
    const double mean = 0.9 * 1.6 + 0.1 * 16 * first * first;
    check_path(follow(rmsprop(rate), 2), {first, first - 0.1 * 4 * first / std::sqrt(mean + 1e-7)});
  }
}

TEST_CASE("weight decay: in the gradient, or decoupled") {
  Optimizer l2 = sgd(constant_rate(0.1f));
  l2.l2 = 1;
  check_path(follow(l2, 1), {1 - 0.1 * 5});
  Optimizer decoupled = sgd(constant_rate(0.1f));
  decoupled.weight_decay = 0.5f;
  check_path(follow(decoupled, 1), {1 - 0.1 * 4 - 0.1 * 0.5});
}

TEST_CASE("clipping acts on elements, on each gradient, or on all of them") {
  Fixture f;
  const Output a = f.values({3, -4}, {2}), b = f.values({0.5f}, {1});
  const auto clipped = [&](const Clip& clip) {
    const auto out = clip(f.s, {a, Output{}, b});
    CHECK_FALSE(out[1]);
    return std::pair(f.floats(out[0]), f.floats(out[2]));
  };
  CHECK(clipped(clip_by_value(1)) == std::pair(std::vector<float>{1, -1}, std::vector<float>{0.5f}));
  const auto each = clipped(clip_by_norm(1));
  CHECK(each.first[0] == Approx(0.6));
  CHECK(each.first[1] == Approx(-0.8));
  CHECK(each.second[0] == 0.5f);
  const auto all = clipped(clip_by_global_norm(1));
  CHECK(all.first[0] == Approx(3 / std::sqrt(25.25)));
  CHECK(all.second[0] == Approx(0.5 / std::sqrt(25.25)));
  Optimizer limited = sgd(constant_rate(0.1f));
  limited.clip = clip_by_norm(1);
  check_path(follow(limited, 1), {0.9});
}

TEST_CASE("schedules as functions of the step") {
  Fixture f;
  const auto at = [&](const Schedule& schedule, float step) { return f.number(schedule(f.s, f.s.constant(step))); };
  CHECK(at(constant_rate(0.5f), 100) == 0.5f);
  CHECK(at(exponential_decay(1, 0.25f, 10), 5) == Approx(0.5));
  CHECK(at(step_decay(1, 0.5f, 10), 9) == Approx(1));
  CHECK(at(step_decay(1, 0.5f, 10), 20) == Approx(0.25));
  const Schedule pieces = piecewise_rate(1, {{10, 0.5f}, {20, 2}});
  CHECK(at(pieces, 9) == Approx(1));
  CHECK(at(pieces, 10) == Approx(0.5));
  CHECK(at(pieces, 25) == Approx(2));
  const Schedule cosine = cosine_decay(1, 110, 10, 0.2f);
  CHECK(at(cosine, 0) == Approx(0.1));
  CHECK(at(cosine, 9) == Approx(1));
  CHECK(at(cosine, 60) == Approx(0.6));
  CHECK(at(cosine, 110) == Approx(0.2));
  CHECK(at(cosine, 1000) == Approx(0.2));
}

TEST_CASE("a gradient that is not there leaves its variable alone") {
  Fixture f;
  f.variables.read(f.s, "unused", {2}, ones());
  const Output w = f.variables.read(f.s, "w", {2}, ones());
  const Node* update = minimize(f.s, f.variables, sgd(constant_rate(1)), sum_all(f.s, w));
  f.initialise();
  f.run({}, {update});
  CHECK(f.variable("unused").data<float>()[0] == 1);
  CHECK(f.variable("w").data<float>()[0] == 0);
}

TEST_CASE("layers on several devices all learn, and each update is made where its gradient is") {
  Fixture f(2);
  const Scope first = f.s.device("/cpu:0"), second = f.s.device("/cpu:1");
  const Output a = f.variables.read(first, "a", {2}, ones()), b = f.variables.read(second, "b", {2}, ones());
  const Output again = f.variables.read(second, "a", {2}, ones());  // read on both devices
  const Output loss = f.s.op("AddN", {sum_all(first, a), sum_all(second, b), sum_all(second, again)});
  const auto found = variable_gradients(f.s, f.variables, loss);
  REQUIRE(found.ok());
  CHECK(f.floats((*found)[0]) == std::vector<float>{2, 2});
  CHECK((*found)[0].node->device() == "/cpu:0");
  CHECK((*found)[1].node->device() == "/cpu:1");
  Optimizer optimizer = sgd(constant_rate(0.25f));
  optimizer.clip = clip_by_global_norm(100);
  const Node* update = minimize(f.s, f.variables, optimizer, loss);
  f.initialise();
  f.run({}, {update});
  CHECK(f.variable("a").data<float>()[0] == Approx(0.5));
  CHECK(f.variable("b").data<float>()[0] == Approx(0.75));
  for (int id = 0; id < f.graph.size(); ++id) {
    const Node& node = f.graph.node(id);
    if (node.op().name() == "ResourceApplyGradientDescent")
      CHECK(node.device() == (node.name().find("/a/") != std::string::npos ? "/cpu:0" : "/cpu:1"));
  }
}

TEST_CASE("what a table's gradient is made of is seen as long as nothing has changed it") {
  Fixture f;
  const Output table = f.variables.read(f.s, "table", {4, 2}, ones());
  const auto take = [&](std::initializer_list<int32_t> ids, const Shape& shape) {
    const Output rows = f.s.op("GatherV2", {table, f.s.constant(Tensor::of<int32_t>(ids, shape)), f.s.constant(0)});
    return sum_all(f.s, f.s.op("Square", {rows}));
  };
  const auto by_table = [&](Output loss) { return variable_gradients(f.s, f.variables, loss).value()[0]; };
  const Output loss = f.s.op("AddV2", {take({1, 3, 1, 0}, {2, 2}), take({3}, {1})});
  const Output gradient = by_table(loss);
  const auto slices = indexed_slices(f.s, gradient);
  REQUIRE(slices);
  f.initialise();
  auto rows = f.run({slices->indices, slices->values, gradient});
  CHECK(rows[0].shape() == Shape{5});
  CHECK(rows[1].shape() == Shape{5, 2});
  CHECK(f.floats(gradient) == std::vector<float>{2, 2, 4, 4, 0, 0, 4, 4});

  // Not where a part of it is whole, or something was done with it.
  CHECK_FALSE(indexed_slices(f.s, by_table(f.s.op("AddV2", {loss, sum_all(f.s, table)}))));
  CHECK_FALSE(indexed_slices(f.s, clip_by_norm(1)(f.s, {gradient})[0]));
  CHECK_FALSE(indexed_slices(f.s, Output{}));

  Optimizer decays = sgd(constant_rate(0.5f));
  decays.l2 = 1;  // so that the rows nobody took change as well
  const Node* update = apply_gradients(f.s, f.variables, decays, {gradient});
  f.initialise();
  f.run({}, {update});
  const Tensor after = f.variable("table");
  for (const auto& [at, value] : {std::pair{0, -0.5f}, {2, -1.5f}, {4, 0.5f}, {6, -1.5f}})
    CHECK(after.data<float>()[at] == Approx(value));
}

TEST_CASE("apply_gradients wants a gradient for each trainable variable") {
  Fixture f;
  f.variables.read(f.s, "w", {2}, ones());
  CHECK(apply_gradients(f.s, f.variables, sgd(constant_rate(1)), {}) == nullptr);
  CHECK_THAT(f.s.status().error().message, Catch::Contains("0 gradients for 1"));
}

TEST_CASE("a piecewise rate is what was given, however far apart the rates are") {
  Fixture f;
  const auto at = [&](const Schedule& schedule, float step) { return f.number(schedule(f.s, f.s.constant(step))); };
  const Schedule pieces = piecewise_rate(1000, {{10, 1e-6f}, {20, 3e-7f}, {30, 5}});
  CHECK(at(pieces, 9) == 1000.f);
  CHECK(at(pieces, 10) == 1e-6f);
  CHECK(at(pieces, 20) == 3e-7f);
  CHECK(at(pieces, 1e9f) == 5.f);
  CHECK(at(piecewise_rate(0.5f, {}), 3) == 0.5f);
}

TEST_CASE("schedules that make no sense are faults") {
  const auto fault = [](const Schedule& schedule) {
    Fixture f;
    CHECK_FALSE(schedule(f.s, f.s.constant(1.f)));
    REQUIRE_FALSE(f.s.ok());
    return f.s.status().error().message;
  };
  CHECK_THAT(fault(piecewise_rate(1, {{10, 1.f}, {10, 2.f}})), Catch::Contains("10 follows 10"));
  CHECK_THAT(fault(piecewise_rate(1, {{10, 1.f}, {-1, 2.f}})), Catch::Contains("-1 follows 10"));
  CHECK_THAT(fault(exponential_decay(1, 0.5f, 0)), Catch::Contains("at least 1, got 0"));
  CHECK_THAT(fault(step_decay(1, 0.5f, -2)), Catch::Contains("at least 1, got -2"));
  CHECK_THAT(fault(cosine_decay(1, 10, 10)), Catch::Contains("more than `warmup` and than 0, got 10 and 10"));
  CHECK_THAT(fault(cosine_decay(1, 5, 10)), Catch::Contains("got 5 and 10"));
  CHECK_THAT(fault(cosine_decay(1, 0)), Catch::Contains("got 0 and 0"));
  CHECK_THAT(fault(cosine_decay(1, -3, -10)), Catch::Contains("got -3 and -10"));
}

TEST_CASE("an optimizer without rate or update, or that loses gradients in clipping, is a fault") {
  const auto fault = [](Optimizer optimizer) {
    Fixture f;
    const Output w = f.variables.read(f.s, "w", {2}, ones());
    CHECK(minimize(f.s, f.variables, optimizer, sum_all(f.s, w)) == nullptr);
    REQUIRE_FALSE(f.s.ok());
    return f.s.status().error().message;
  };
  CHECK_THAT(fault({}), Catch::Contains("no rate"));
  Optimizer o = sgd(constant_rate(1));
  o.update = {};
  CHECK_THAT(fault(o), Catch::Contains("no update"));
  o = sgd({});
  CHECK_THAT(fault(o), Catch::Contains("no rate"));
  o = sgd(constant_rate(1));
  o.clip = [](const Scope&, const std::vector<Output>&) { return std::vector<Output>(); };
  CHECK_THAT(fault(o), Catch::Contains("0 gradients of 1"));
  o.clip = [](const Scope&, const std::vector<Output>& g) { return std::vector<Output>(3, g[0]); };
  CHECK_THAT(fault(o), Catch::Contains("3 gradients of 1"));
  o.clip = [](const Scope&, const std::vector<Output>& g) { return std::vector<Output>(g.size()); };
  CHECK_THAT(fault(o), Catch::Contains("no gradient of") && Catch::Contains("would not be trained"));
  o = sgd(constant_rate(1));
  o.update = [](const UpdateContext&) -> const Node* { return nullptr; };
  CHECK_THAT(fault(o), Catch::Contains("variable 'w' gives no node"));
}

TEST_CASE("a loss that is not there, or of no variable, is a fault or an update of nothing") {
  Fixture f;
  const Output w = f.variables.read(f.s, "w", {2}, ones());
  const Node* update = minimize(f.s, f.variables, sgd(constant_rate(1)), f.s.constant(1.f));
  f.initialise();
  f.run({}, {update});
  CHECK(f.floats(w) == std::vector<float>{1, 1});
  CHECK(f.variable("global_step").data<int64_t>()[0] == 1);
  CHECK(minimize(f.s, f.variables, sgd(constant_rate(1)), {}) == nullptr);
  CHECK_FALSE(f.s.ok());
}

TEST_CASE("what gradients cannot be limited to is told before a step goes the other way") {
  for (const float limit : {-1.f, 0.f, NAN, INFINITY}) {
    std::vector<Clip> clips = {clip_by_norm(limit), clip_by_global_norm(limit)};
    if (!(limit >= 0)) clips.push_back(clip_by_value(limit));
    for (const Clip& clip : clips) {
      Fixture f;
      CHECK(clip(f.s, {f.values({3, -4}, {2})}).size() == 1);
      CHECK_THAT(f.s.status().error().message, Catch::Contains("clip_by_") && Catch::Contains("got"));
    }
  }
}

TEST_CASE("clipping leaves gradients of zero and empty ones as they are") {
  Fixture f;
  const Output zero = f.values({0, 0}, {2});
  for (const Clip& clip : {clip_by_value(1), clip_by_norm(1), clip_by_global_norm(1)}) {
    const auto out = clip(f.s, {Output{}, zero});
    CHECK_FALSE(out[0]);
    CHECK(f.floats(out[1]) == std::vector<float>{0, 0});
    CHECK_FALSE(clip(f.s, {Output{}})[0]);
  }
}

}  // namespace
}  // namespace troupe::nn
