// SPDX-License-Identifier: Apache-2.0
// Layers, losses, variables and initial values against numbers worked out by hand.
#include "tests/nn/fixture.h"

#include <array>
#include <cmath>

#include "troupe/control_flow.h"

namespace troupe::nn {
namespace {

TEST_CASE("a variable is defined once and shared by every later use of its name") {
  Fixture f;
  const Output a = f.variables.read(f.s, "w", {2}, constant_init(3));
  const Output again = f.variables.read(f.s.scope("elsewhere"), "w", {2}, constant_init(4));
  const Output other_device = f.variables.read(f.s.device("/cpu:0"), "w", {2}, constant_init(4));
  CHECK(a == again);
  CHECK_FALSE(a == other_device);
  CHECK(f.variables.all().size() == 1);
  f.initialise();
  CHECK(f.floats(other_device) == std::vector<float>{3, 3});
}

TEST_CASE("a variable asked for in another shape is an error that names both") {
  Fixture f;
  f.variables.read(f.s, "w", {2, 3}, zeros());
  CHECK_FALSE(f.variables.read(f.s, "w", {3, 2}, zeros()));
  REQUIRE_FALSE(f.s.ok());
  CHECK_THAT(f.s.status().error().message,
             Catch::Contains("'w'") && Catch::Contains("[2,3]") && Catch::Contains("[3,2]"));
}

TEST_CASE("initial values have the variance of their rule, and depend on seed and name alone") {
  Fixture f;
  const auto moments = [&](const Initializer& init, const Shape& shape, int64_t seed) {
    const auto x = f.floats(init(f.s, shape, seed));
    double sum = 0, squares = 0;
    for (const float v : x) sum += v, squares += v * v;
    const auto n = static_cast<double>(x.size());
    return std::pair(sum / n, squares / n);
  };
  const Shape dense_shape{200, 300}, conv_shape{5, 5, 20, 40};
  for (const auto& init : {glorot_uniform(), glorot_normal()}) {
    const auto [mean, variance] = moments(init, dense_shape, 7);
    CHECK(std::abs(mean) < 0.002);
    CHECK(variance == Approx(2. / 500).epsilon(0.03));
  }
  for (const auto& init : {he_uniform(), he_normal()})
    CHECK(moments(init, conv_shape, 7).second == Approx(2. / 500).epsilon(0.05));

  CHECK(f.floats(he_normal()(f.s, {4, 4}, 5)) == f.floats(he_normal()(f.s, {4, 4}, 5)));
  CHECK(f.floats(he_normal()(f.s, {4, 4}, 5)) != f.floats(he_normal()(f.s, {4, 4}, 6)));
  CHECK(Variables({}, 1).seed_for("a") == Variables({}, 1).seed_for("a"));
  CHECK(Variables({}, 1).seed_for("a") != Variables({}, 1).seed_for("b"));
  CHECK(Variables({}, 1).seed_for("a") != Variables({}, 2).seed_for("a"));
}

TEST_CASE("dense is a product and a bias") {
  Fixture f;
  const Output y = dense(f.s, f.variables, f.values({1, 2, 3, 4}, {2, 2}), 3, "fc", {.kernel = constant_init(0.5f)});
  CHECK(y.shape() == PartialShape{2, 3});
  f.initialise();
  CHECK(f.floats(y) == std::vector<float>{1.5f, 1.5f, 1.5f, 3.5f, 3.5f, 3.5f});
  CHECK(f.variables.trainable().size() == 2);
}

TEST_CASE("conv2d sums windows, pooling takes the largest or the mean") {
  Fixture f;
  const Output x = f.values({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, {1, 4, 4, 1});
  const Output valid = conv2d(f.s, f.variables, x, 2, 3, "valid", {.padding = "VALID", .kernel = ones()});
  const Output strided = conv2d(f.s, f.variables, x, 1, 3, "strided", {.stride = 2, .kernel = ones()});
  CHECK(valid.shape() == PartialShape{1, 2, 2, 2});
  CHECK(strided.shape() == PartialShape{1, 2, 2, 1});
  f.initialise();
  CHECK(f.floats(valid) == std::vector<float>{54, 54, 63, 63, 90, 90, 99, 99});
  CHECK(f.floats(max_pool(f.s, x, 2)) == std::vector<float>{6, 8, 14, 16});
  CHECK(f.floats(avg_pool(f.s, x, 2)) == std::vector<float>{3.5f, 5.5f, 11.5f, 13.5f});
  CHECK(flatten(f.s, x).shape() == PartialShape{1, 16});
}

TEST_CASE("lstm carries its state from step to step, whichever way its input lies") {
  Fixture f;
  const LstmOptions half = {.kernel = constant_init(0.5f)};
  const LstmResult y = lstm(f.s, f.variables, f.values({1, 2, -3}, {1, 3, 1}), 1, "cell", half);
  f.variables.reuse("cell");
  const LstmResult by_time =
      lstm(f.s, f.variables, f.values({1, 2, -3}, {3, 1, 1}), 1, "cell", {.time_major = true, .kernel = half.kernel});
  CHECK(y.outputs.shape() == PartialShape{1, 3, 1});
  CHECK(by_time.outputs.shape() == PartialShape{3, 1, 1});
  CHECK(y.last.shape() == PartialShape{1, 1});
  f.initialise();
  const auto logistic = [](double x) { return 1 / (1 + std::exp(-x)); };
  const auto outputs = f.floats(y.outputs);
  double c = 0, h = 0;
  for (int t = 0; t < 3; ++t) {
    const double sum = 0.5 * std::array{1, 2, -3}[t] + 0.5 * h;
    c = std::tanh(sum) * logistic(sum) + c * logistic(sum + 1);
    h = std::tanh(c) * logistic(sum);
    CHECK(outputs[t] == Approx(h));
  }
  CHECK(f.floats(by_time.outputs) == outputs);
  CHECK(f.number(y.last) == outputs[2]);
  CHECK(f.number(by_time.cell) == Approx(c));
  CHECK(f.variables.trainable().size() == 2);
}

TEST_CASE("lstm goes on from a state, and its gradient goes back through it") {
  Fixture f;
  const LstmOptions by_time = {.time_major = true};
  const Output x = f.values({1, 2, -3, 0.5f, -1, 4, 2, 2, 0, 1}, {5, 1, 2});
  const auto steps = [&](int from, int n) {
    return f.s.op("Slice",
                  {x, f.s.constant(Tensor::of<int32_t>({from, 0, 0})), f.s.constant(Tensor::of<int32_t>({n, 1, 2}))});
  };
  const LstmResult whole = lstm(f.s, f.variables, x, 3, "cell", by_time);
  f.variables.reuse();
  const LstmResult first = lstm(f.s, f.variables, steps(0, 2), 3, "cell", by_time);
  f.variables.reuse();
  const LstmResult rest =
      lstm(f.s, f.variables, steps(2, 3), 3, "cell", {.time_major = true, .initial = first.state()});
  f.initialise();
  CHECK(f.floats(rest.last) == f.floats(whole.last));
  CHECK(f.floats(rest.cell) == f.floats(whole.cell));
  const Output kernel = f.variables.read(f.s, f.variables.all()[0]);
  const auto by = [&](const LstmResult& y) {
    const auto found = gradients(f.s, {sum_all(f.s, f.s.op("Mul", {y.last, y.cell}))}, {kernel, x});
    REQUIRE(found.ok());
    return std::pair(f.floats((*found)[0]), f.floats((*found)[1]));
  };
  const auto wanted = by(whole), got = by(rest);
  for (size_t i = 0; i < wanted.first.size(); ++i) CHECK(got.first[i] == Approx(wanted.first[i]).margin(1e-6));
  for (size_t i = 0; i < wanted.second.size(); ++i) CHECK(got.second[i] == Approx(wanted.second[i]).margin(1e-6));
  CHECK(std::abs(wanted.second[0]) > 1e-4);  // of the first step

  f.variables.reuse();
  CHECK_FALSE(lstm(f.s, f.variables, x, 3, "cell", {.time_major = true, .initial = {.c = x}}).last);
  REQUIRE_FALSE(f.s.ok());
  CHECK_THAT(f.s.status().error().message,
             Catch::Contains("'cell'") && Catch::Contains("[5,1,2]") && Catch::Contains("[1,3]"));
}

TEST_CASE("embedding takes rows of a table") {
  Fixture f;
  const Output ids = f.s.constant(Tensor::of<int64_t>({2, 0}, {2, 1}));
  const Output rows = embedding(f.s, f.variables, ids, 3, 2, "words", {.table = constant_init(4)});
  CHECK(rows.shape() == PartialShape{2, 1, 2});
  f.initialise();
  CHECK(f.floats(rows) == std::vector<float>{4, 4, 4, 4});
  CHECK(f.variable("words/table").shape() == Shape{3, 2});
}

TEST_CASE("layers refuse inputs whose sizes are not known") {
  const auto fault = [](auto build) {
    Fixture f;
    const Output x =
        f.s.named("x").op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{-1, -1}}});
    CHECK_FALSE(build(f, x));
    REQUIRE_FALSE(f.s.ok());
    return f.s.status().error().message;
  };
  CHECK_THAT(fault([](Fixture& f, Output x) { return dense(f.s, f.variables, x, 3, "fc"); }),
             Catch::Contains("'fc'") && Catch::Contains("[?,?]"));
  CHECK_THAT(fault([](Fixture& f, Output x) { return conv2d(f.s, f.variables, x, 3, 3, "c"); }),
             Catch::Contains("'c'"));
  CHECK_THAT(fault([](Fixture& f, Output x) { return lstm(f.s, f.variables, x, 3, "cell").outputs; }),
             Catch::Contains("'cell'") && Catch::Contains("[?,?]"));
  CHECK_THAT(fault([](Fixture& f, Output x) {
               return lstm(f.s, f.variables,
                           f.s.op("ExpandDims", {flatten(f.s, f.values({1}, {1, 1})), f.s.constant(0)}), 0, "none")
                              .last
                          ? x
                          : Output();
             }),
             Catch::Contains("'none'") && Catch::Contains("0 units"));
  CHECK_THAT(fault([](Fixture& f, Output x) { return flatten(f.s, x); }), Catch::Contains("[?,?]"));
  CHECK_THAT(fault([](Fixture& f, Output x) { return dropout(f.s, f.variables, x, 1.5f, true); }),
             Catch::Contains("1.5"));
}

TEST_CASE("batch_norm normalises by the batch, moves its averages, and tests by them") {
  Fixture f;
  const Output x = f.values({1, 10, 3, 30}, {2, 2});
  const Output train = batch_norm(f.s, f.variables, x, "bn", true, {.momentum = 0.5f, .epsilon = 0});
  f.variables.reuse();
  const Output test = batch_norm(f.s, f.variables, x, "bn", false, {.epsilon = 0});
  f.initialise();
  const auto updates = f.variables.take_updates();
  REQUIRE(updates.size() == 2);
  const Tensor y = f.run({train}, updates)[0];
  CHECK(y.shape() == Shape{2, 2});
  CHECK(y.data<float>()[0] == Approx(-1));
  CHECK(y.data<float>()[3] == Approx(1));
  // Halfway from 0 to the mean; from 1 to the unbiased variance, 2 and 200.
  CHECK(f.variable("bn/moving_mean").values<float>()[0] == Approx(1));
  CHECK(f.variable("bn/moving_mean").values<float>()[1] == Approx(10));
  CHECK(f.variable("bn/moving_variance").values<float>()[0] == Approx(1.5));
  CHECK(f.variable("bn/moving_variance").values<float>()[1] == Approx(100.5));
  const auto tested = f.floats(test);
  CHECK(tested[2] == Approx((3 - 1) / std::sqrt(1.5)));
  CHECK(tested[1] == Approx(0).margin(1e-6));
}

TEST_CASE("batch_norm in training names itself where it is in a loop, and may be in a branch or, in tests, in a loop") {
  Fixture f;
  const Output x = f.values({1, 10, 3, 30}, {2, 2});
  const bool training = GENERATE(true, false), in_branch = GENERATE(true, false);
  const auto norm = [&](const Scope& s, Output at) { return batch_norm(s, f.variables, at, "bn", training); };
  const auto branch = [&](const Scope& s, Output at) {
    const auto got = cond(
        s, s.op("Less", {sum_all(s, at), s.constant(1e6f)}), [&](const Scope& t) { return std::vector{norm(t, at)}; },
        [&](const Scope&) { return std::vector{at}; });
    return got.empty() ? Output() : got[0];
  };
  SECTION("in a loop") {
    const auto loop = while_loop(
        f.s, {f.s.constant(0), x},
        [](const Scope& s, const std::vector<Output>& v) {
          return s.op("Less", {v[0], s.constant(2)});
        },
        [&](const Scope& s, const std::vector<Output>& v) -> std::vector<Output> {
          return {v[0] + 1, in_branch ? branch(s, v[1]) : norm(s, v[1])};
        });
    CHECK(f.s.ok() == !training);
    if (training) {
      CHECK_THAT(f.s.status().error().str(), Catch::Contains("batch_norm 'bn'") && Catch::Contains("loop"));
      return;
    }
    f.initialise();
    CHECK(f.floats(loop[1])[0] == Approx(1).epsilon(0.01));  // the averages begin at 0 and 1
  }
  SECTION("in a branch") {
    const Output y = branch(f.s, x);
    f.initialise();
    f.run({y}, f.variables.take_updates());
    CHECK(f.variable("bn/moving_mean").values<float>()[0] == Approx(training ? 0.2 : 0));
  }
}

TEST_CASE("dropout keeps the mean in training and does nothing in tests") {
  Fixture f;
  const Output x = f.s.op("Fill", {f.s.constant(Tensor::of<int32_t>({10000})), f.s.constant(1.f)});
  CHECK(dropout(f.s, f.variables, x, 0.25f, false) == x);
  const auto y = f.floats(dropout(f.s, f.variables, x, 0.25f, true));
  int64_t zero = 0;
  for (const float v : y) {
    if (v == 0) ++zero;
    else CHECK(v == Approx(4.f / 3));
  }
  CHECK(std::abs(static_cast<double>(zero) - 2500) < 200);
}

TEST_CASE("losses and accuracy") {
  Fixture f;
  const Output logits = f.values({1, 2, 3, 0, 0, 0}, {2, 3});
  const Output labels = f.s.constant(Tensor::of<int32_t>({2, 1}));
  const double first = std::log(std::exp(-2.) + std::exp(-1.) + 1), second = std::log(3.);
  CHECK(f.number(sparse_softmax_cross_entropy(f.s, logits, labels)) == Approx((first + second) / 2));
  const Output dense_labels = f.values({0, 0, 1, 0, 1, 0}, {2, 3});
  CHECK(f.number(softmax_cross_entropy(f.s, logits, dense_labels)) == Approx((first + second) / 2));
  CHECK(f.number(accuracy(f.s, logits, labels)) == Approx(0.5));

  const Output wide = f.values({0, 100, -100, 2}, {4});
  const double expected = (std::log(2.) + 0 + 100 + std::log1p(std::exp(2.))) / 4;
  CHECK(f.number(sigmoid_cross_entropy(f.s, wide, f.values({1, 1, 1, 0}, {4}))) == Approx(expected));
  CHECK(f.number(mean_squared_error(f.s, f.values({1, 2}, {2}), f.values({3, 5}, {2}))) == Approx(6.5));
}

TEST_CASE("the gradient of sigmoid_cross_entropy is sigmoid(x) - z, also of logits that are 0") {
  Fixture f;
  const Output logits = f.values({0, 0, -0.f, 3, -3, 50}, {6});
  const Output loss = sigmoid_cross_entropy(f.s, logits, f.values({0, 1, 0.25f, 1, 1, 0}, {6}));
  const auto gradient = gradients(f.s, {loss}, {logits});
  REQUIRE(gradient.ok());
  const std::vector<float> got = f.floats((*gradient)[0]);
  const double of_3 = 1 / (1 + std::exp(-3.));
  const double expected[] = {0.5, -0.5, 0.25, of_3 - 1, -of_3, 1};
  for (size_t i = 0; i < 6; ++i) CHECK(got[i] == Approx(expected[i] / 6));
}

TEST_CASE("a variable first used in a branch or loop is made and read outside, where others share it") {
  Fixture f;
  const Output x = f.values({1, 2, 3, 4}, {2, 2});
  const Output chosen = f.s.op("Placeholder", {}, {{"dtype", DType::kBool}, {"shape", PartialShape{}}});
  const DenseOptions twos = {.kernel = constant_init(2)};
  const auto layer = [&](const Scope& s, Output in) {
    f.variables.reuse();
    return dense(s, f.variables, in, 2, "layer", twos);
  };
  const auto in_branch = cond(
      f.s, chosen, [&](const Scope& s) { return std::vector<Output>{layer(s, x)}; },
      [&](const Scope& s) { return std::vector<Output>{relu(s, -layer(s, x))}; });
  const auto in_loop = while_loop(
      f.s, {f.s.constant(0), x},
      [](const Scope& s, const std::vector<Output>& v) {
        return s.op("Less", {v[0], s.constant(2)});
      },
      [&](const Scope& s, const std::vector<Output>& v) {
        return std::vector<Output>{v[0] + 1, embedding(s, f.variables, v[0], 2, 2, "table", {constant_init(1)}) + v[1]};
      });
  REQUIRE(f.s.ok());
  const Output outside = layer(f.s, x),
               loss = mean_all(f.s, in_branch[0]) + mean_all(f.s, in_loop[1]) + l2_penalty(f.s, f.variables, 1);
  const Node* train = minimize(f.s, f.variables, sgd(constant_rate(0.1f)), loss);
  REQUIRE(f.s.ok());
  f.initialise();  // without a feed
  for (const bool value : {true, false}) {
    const auto got = f.session->run({{chosen, Tensor::scalar(value)}}, {in_branch[0], outside, in_loop[1]});
    REQUIRE(got.ok());
    CHECK((*got)[0].data<float>()[3] == (value ? 14.f : 0.f));
    CHECK((*got)[1].data<float>()[3] == 14.f);
    CHECK((*got)[2].data<float>()[3] == 6.f);
  }
  // kernel: 2 - 0.1 ((1 + 3) / 4 + 2); table: 1 - 0.1 (2 / 4 + 1), each row being read for two rows of x.
  REQUIRE(f.session->run({{chosen, Tensor::scalar(true)}}, std::vector<Output>{}, {train}).ok());
  CHECK(f.variable("layer/kernel").data<float>()[0] == Approx(1.7f));
  CHECK(f.variable("table/table").data<float>()[0] == Approx(0.85f));
}

TEST_CASE("initial values wait for nothing that their layer waits for") {
  Fixture f;
  const Output fed = f.s.op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", PartialShape{}}});
  const Scope late = f.s.after(std::vector<Output>{fed});
  const Output loss = mean_all(late, dense(late, f.variables, f.values({1}, {1, 1}), 1, "layer"));
  minimize(late, f.variables, momentum(constant_rate(0.1f)), loss);
  f.initialise();
}

TEST_CASE("l2_penalty counts kernels, not biases") {
  Fixture f;
  f.variables.read(f.s, "kernel", {2, 2}, constant_init(3));
  f.variables.read(f.s, "bias", {2}, constant_init(100));
  const Output penalty = l2_penalty(f.s, f.variables, 0.5f);
  f.initialise();
  CHECK(f.number(penalty) == Approx(0.25 * 4 * 9));
}

TEST_CASE("a variable that cannot be made is an error or an exception, and defines nothing") {
  const auto fault = [](auto build) {
    Fixture f;
    build(f, f.values({1, 2, 3, 4}, {1, 2, 2, 1}));
    REQUIRE_FALSE(f.s.ok());
    CHECK(f.variables.all().empty());
    return f.s.status().error().message;
  };
  using Catch::Contains;
  CHECK_THAT(fault([](Fixture& f, Output x) { dense(f.s, f.variables, flatten(f.s, x), -3, "fc"); }),
             Contains("'fc/kernel'") && Contains("-3"));
  CHECK_THAT(fault([](Fixture& f, Output x) { conv2d(f.s, f.variables, x, 2, -1, "c"); }), Contains("'c/kernel'"));
  CHECK_THAT(fault([](Fixture& f, Output x) { dense(f.s, f.variables, flatten(f.s, x), INT64_MAX, "fc"); }),
             Contains("'fc/kernel'"));
  CHECK_THAT(fault([](Fixture& f, Output x) { dense(f.s, f.variables, flatten(f.s, x), 3, "fc", {.kernel = {}}); }),
             Contains("'fc/kernel'") && Contains("no initializer"));
  Fixture f;
  const Initializer throwing = [](const Scope&, const Shape&, int64_t) -> Output {
    throw std::runtime_error("thrown");
  };
  CHECK_THROWS_WITH(f.variables.read(f.s, "w", {2}, throwing), "thrown");
  CHECK(f.variables.all().empty());
  const Output w = f.variables.read(f.s, "w", {2}, constant_init(3));
  f.initialise();
  CHECK(f.floats(w) == std::vector<float>{3, 3});
}

TEST_CASE("a variable has one dtype; one that is handled first is read later") {
  Fixture f;
  const Output handle = f.variables.handle(f.s, "n", {}, constant_init(7), false, DType::kInt64);
  const Output read = f.variables.read(f.s, "n", {}, constant_init(8), true, DType::kInt64);
  CHECK(f.variables.handle(f.s, f.variables.all()[0]) == handle);
  CHECK(f.variables.trainable().empty());  // as at the first use
  f.initialise();
  CHECK(f.run({read})[0].data<int64_t>()[0] == 7);
  CHECK_FALSE(f.variables.read(f.s, "n", {}, zeros(), true, DType::kInt32));
  CHECK_THAT(f.s.status().error().message, Catch::Contains("int64") && Catch::Contains("int32"));
}

TEST_CASE("models of two graphs share variables by their names, not one Variables") {
  Fixture f;
  const auto model = [](const Scope& s, Variables& v) {
    return dense(s, v, s.constant(Tensor::of<float>({1, 2}, {1, 2})), 2, "fc");
  };
  const Output y = model(f.s, f.variables);
  f.initialise();
  Graph other(f.engine->ops());
  const Scope there(other);
  Variables same;
  const auto found = Session(*f.engine, other).run({}, {model(there, same)});
  REQUIRE(found.ok());
  CHECK((*found)[0].identical(f.run({y})[0]));
  Graph third(f.engine->ops());
  const Scope refused(third);
  f.variables.reuse();
  CHECK_FALSE(model(refused, f.variables));
  CHECK_THAT(refused.status().error().message, Catch::Contains("another graph"));
  CHECK(f.s.ok());
}

TEST_CASE("two layers of one name are an error unless sharing is asked for") {
  using Layer = std::function<Output(const Scope&, Variables&)>;
  const auto flat = [](const Scope& s) { return s.constant(Tensor::of<float>({1, 2}, {1, 2})); };
  const auto image = [](const Scope& s) { return s.constant(Tensor::of<float>({1, 2}, {1, 1, 2, 1})); };
  const auto ids = [](const Scope& s) { return s.constant(Tensor::of<int32_t>({1})); };
  const std::vector<std::pair<const char*, Layer>> layers = {
      {"a/kernel", [=](const Scope& s, Variables& v) { return dense(s, v, flat(s), 2, "a"); }},
      {"a/kernel", [=](const Scope& s, Variables& v) { return conv2d(s, v, image(s), 2, 1, "a"); }},
      {"a/gamma", [=](const Scope& s, Variables& v) { return batch_norm(s, v, flat(s), "a", true); }},
      {"a/table", [=](const Scope& s, Variables& v) { return embedding(s, v, ids(s), 3, 2, "a"); }},
      {"a/kernel",
       [=](const Scope& s, Variables& v) {
         return lstm(s, v, s.op("Reshape", {flat(s), s.constant(Tensor::of<int32_t>({1, 2, 1}))}), 2, "a").last;
       }},
  };
  for (const auto& [name, layer] : layers) {
    INFO(name);
    Fixture f;
    REQUIRE(layer(f.s.scope("left"), f.variables));
    const size_t variables = f.variables.all().size();
    f.variables.reuse("b");
    f.variables.reuse("a");
    REQUIRE(layer(f.s.scope("left_again"), f.variables));
    f.variables.reuse();
    REQUIRE(layer(f.s, f.variables));
    CHECK(f.variables.all().size() == variables);
    CHECK_FALSE(layer(f.s.scope("right"), f.variables));
    REQUIRE_FALSE(f.s.ok());
    CHECK_THAT(f.s.status().error().message, Catch::Contains(fmt::format("variable '{}'", name)) &&
                                                 Catch::Contains("in the outermost scope") &&
                                                 Catch::Contains("'right/'") && Catch::Contains("reuse()"));
  }
  // A name that begins alike is another one, and reads share by their names.
  Fixture f;
  REQUIRE(dense(f.s, f.variables, flat(f.s), 2, "a"));
  REQUIRE(dense(f.s, f.variables, flat(f.s), 2, "ab"));
  REQUIRE(f.variables.read(f.s, "a/kernel", {2, 2}, zeros()));
  f.variables.reuse("a");
  CHECK_FALSE(dense(f.s, f.variables, flat(f.s), 2, "ab"));
}

TEST_CASE("a layer says which size it lacks") {
  const auto fault = [](const PartialShape& shape, auto build) {
    Fixture f;
    build(f, f.s.named("x").op("Placeholder", {}, {{"dtype", DType::kFloat32}, {"shape", shape}}));
    REQUIRE_FALSE(f.s.ok());
    return f.s.status().error().message;
  };
  const auto fc = [](Fixture& f, Output x) { dense(f.s, f.variables, x, 2, "fc"); };
  CHECK_THAT(fault({3, 0}, fc), Catch::Contains("shape [3,0]; its last size must be at least 1"));
  CHECK_THAT(fault({3, -1}, fc), Catch::Contains("a known last size"));
  CHECK_THAT(fault({3, 4, 4, 0}, [](Fixture& f, Output x) { conv2d(f.s, f.variables, x, 2, 1, "c"); }),
             Catch::Contains("its last size must be at least 1"));
}

TEST_CASE("an empty output or a size that makes no sense is a fault of each layer") {
  const auto fails = [](auto build) {
    Fixture f;
    const Output y = build(f, f.values({1, 2, 3, 4}, {1, 2, 2, 1}));
    const auto status = f.s.ok() ? f.session->run({}, {y}).status() : f.s.status();
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().code == Code::kInvalidArgument);
  };
  using O = Output;
  fails([](Fixture& f, O) { return dense(f.s, f.variables, {}, 2, "fc"); });
  fails([](Fixture& f, O) { return conv2d(f.s, f.variables, {}, 2, 1, "c"); });
  fails([](Fixture& f, O) { return batch_norm(f.s, f.variables, {}, "bn", true); });
  fails([](Fixture& f, O) { return lstm(f.s, f.variables, {}, 2, "cell").last; });
  fails([](Fixture& f, O) { return lstm_stack({f.s}, f.variables, {}, 2, "stack").outputs(f.s); });
  fails([](Fixture& f, O) { return embedding(f.s, f.variables, {}, 2, 2, "words"); });
  for (const bool training : {false, true})
    fails([=](Fixture& f, O) { return dropout(f.s, f.variables, {}, 0.5f, training); });
  fails([](Fixture& f, O) { return flatten(f.s, {}); });
  fails([](Fixture& f, O) { return mean_all(f.s, {}); });
  fails([](Fixture& f, O x) { return accuracy(f.s, x, {}); });
  fails([](Fixture& f, O x) { return mean_squared_error(f.s, x, {}); });
  fails([](Fixture& f, O x) { return max_pool(f.s, x, 0); });
  fails([](Fixture& f, O x) { return max_pool(f.s, x, -2); });
  fails([](Fixture& f, O x) { return avg_pool(f.s, x, 2, -1); });
  fails([](Fixture& f, O x) { return avg_pool(f.s, x, 2, 2, "sAME"); });
  fails([](Fixture& f, O x) { return conv2d(f.s, f.variables, x, 2, 1, "c", {.stride = 0}); });
  fails([](Fixture& f, O x) { return conv2d(f.s, f.variables, x, 2, 1, "c", {.stride = -1}); });
  fails([](Fixture& f, O x) { return lstm(f.s, f.variables, x, 2, "cell").last; });
  fails([](Fixture& f, O x) { return embedding(f.s, f.variables, x, 2, 2, "words"); });
  fails([](Fixture& f, O x) { return embedding(f.s, f.variables, x, 2, 0, "words"); });
  for (const float rate : {-0.1f, 1.f, std::nanf("")})
    for (const bool training : {false, true})
      fails([=](Fixture& f, O x) { return dropout(f.s, f.variables, x, rate, training); });
}

TEST_CASE("a stack of no layers has no chunks") {
  Fixture f;
  const auto stack = lstm_stack({}, f.variables, f.values({1, 2}, {1, 2, 1}), 2, "stack");
  CHECK(stack.chunks.empty());
  CHECK_FALSE(stack.outputs(f.s));
}

TEST_CASE("flatten takes tensors without elements") {
  Fixture f;
  CHECK(f.run({flatten(f.s, f.values({}, {2, 0, 3}))})[0].shape() == Shape{2, 0});
  CHECK(f.run({flatten(f.s, f.values({}, {0, 2, 3}))})[0].shape() == Shape{0, 6});
  CHECK(f.run({flatten(f.s, f.values({1, 2}, {2}))})[0].shape() == Shape{2, 1});
}

TEST_CASE("what dropout draws follows from the seed of the variables and the scope") {
  const auto draw = [](int64_t seed, const std::string& scope, int layers) {
    Fixture f;
    f.variables = Variables({}, seed);
    const Output x = f.s.op("Fill", {f.s.constant(Tensor::of<int32_t>({64})), f.s.constant(1.f)});
    const Scope s = f.s.scope(scope);
    Output y;
    for (int i = 0; i < layers; ++i) y = dropout(s, f.variables, x, 0.5f, true);
    return f.floats(y);
  };
  CHECK(draw(1, "a", 1) == draw(1, "a", 1));
  CHECK(draw(1, "a", 1) != draw(2, "a", 1));
  CHECK(draw(1, "a", 1) != draw(1, "b", 1));
  CHECK(draw(1, "a", 1) != draw(1, "a", 2));  // the second layer of a scope has a mask of its own
}

}  // namespace
}  // namespace troupe::nn
