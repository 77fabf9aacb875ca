// SPDX-License-Identifier: Apache-2.0
// Layers of transformers against loops over their numbers, their gradients against differences, and what they refuse.
#include "troupe/transformer.h"

#include <cmath>

#include "tests/nn/fixture.h"
#include "troupe/graph_def.h"

namespace troupe::nn {
namespace {

using Catch::Contains;
using Numbers = std::vector<double>;

Numbers numbers(const Tensor& t) { return {t.values<float>().begin(), t.values<float>().end()}; }

void check_close(const std::vector<float>& got, const Numbers& wanted, double margin = 1e-5) {
  REQUIRE(got.size() == wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO(i);
    CHECK(got[i] == Approx(wanted[i]).margin(margin));
  }
}

/// rows x in times in x out, plus a bias where there is one.
Numbers product(const Numbers& x, const Numbers& kernel, const Numbers& bias, size_t in) {
  const size_t out = kernel.size() / in;
  Numbers y;
  for (size_t row = 0; row < x.size() / in; ++row)
    for (size_t j = 0; j < out; ++j) {
      double sum = bias.empty() ? 0 : bias[j];
      for (size_t k = 0; k < in; ++k) sum += x[row * in + k] * kernel[k * out + j];
      y.push_back(sum);
    }
  return y;
}

/// Attention of one head and example: q [m, size], k [n, size], v [n, width].
template <class Sees>
Numbers attended(const Numbers& q, const Numbers& k, const Numbers& v, size_t size, size_t width, Sees sees) {
  const size_t m = q.size() / size, n = k.size() / size;
  Numbers y(m * width);
  for (size_t i = 0; i < m; ++i) {
    Numbers weights;
    double sum = 0;
    for (size_t j = 0; j < n; ++j) {
      double score = 0;
      for (size_t d = 0; d < size; ++d) score += q[i * size + d] * k[j * size + d];
      weights.push_back(sees(i, j) ? std::exp(score / std::sqrt(static_cast<double>(size))) : 0);
      sum += weights.back();
    }
    for (size_t j = 0; j < n; ++j)
      for (size_t d = 0; d < width; ++d)
        y[i * width + d] += (sum > 0 ? weights[j] / sum : 1. / static_cast<double>(n)) * v[j * width + d];
  }
  return y;
}

Output placeholder(Fixture& f, const PartialShape& shape, DType dtype = DType::kFloat32) {
  return f.s.op("Placeholder", {}, {{"dtype", dtype}, {"shape", shape}});
}

/// Every fifth derivative of sum(weights * build(x)) by x and by each trainable variable against a central difference.
void check_gradients(const Shape& shape, const std::function<Output(Fixture&, Output)>& build) {
  Fixture f;
  const Output x = placeholder(f, PartialShape(shape));
  const Output y = build(f, x);
  REQUIRE(f.s.ok());
  auto of_y = Shape::make(y.shape().dims());
  REQUIRE(of_y.ok());
  const Output loss = sum_all(f.s, y * f.s.constant(random_tensor(*of_y, 9)));
  std::vector<Output> by = f.variables.trainable_reads(f.s);
  by.push_back(x);
  const auto found = gradients(f.s, {loss}, by);
  REQUIRE(found.ok());
  f.initialise();
  std::vector<Feed> feeds;
  for (size_t i = 0; i < by.size(); ++i) {
    auto size = Shape::make(by[i].shape().dims());
    REQUIRE(size.ok());
    feeds.push_back({by[i], random_tensor(*size, static_cast<unsigned>(20 + i))});
  }
  const auto fetched = f.session->run(feeds, *found);
  REQUIRE(fetched.ok());
  const auto loss_of = [&](size_t which, int64_t element, float step) {
    std::vector<Feed> moved = feeds;
    std::vector<float> values(feeds[which].value.values<float>().begin(), feeds[which].value.values<float>().end());
    values[static_cast<size_t>(element)] += step;
    moved[which].value = Tensor::of<float>(std::span<const float>(values), feeds[which].value.shape());
    const auto result = f.session->run(moved, {loss});
    REQUIRE(result.ok());
    return static_cast<double>((*result)[0].data<float>()[0]);
  };
  for (size_t i = 0; i < by.size(); ++i) {
    REQUIRE((*fetched)[i].shape() == feeds[i].value.shape());
    for (int64_t element = 0; element < feeds[i].value.elements(); element += 5) {
      const double difference = (loss_of(i, element, 5e-3f) - loss_of(i, element, -5e-3f)) / 1e-2;
      INFO(by[i].name() << " " << element);
      CHECK((*fetched)[i].data<float>()[element] == Approx(difference).epsilon(0.02).margin(0.02));
    }
  }
}

template <class Build> std::string fault(Build build) {
  Fixture f;
  build(f);
  REQUIRE_FALSE(f.s.ok());
  return f.s.status().error().message;
}

TEST_CASE("dense works on the last dimension of any rank, with sizes that are known in the step alone") {
  Fixture f;
  const Tensor value = random_tensor({2, 3, 4});
  const Output fixed = dense(f.s, f.variables, f.s.constant(value), 5, "fc");
  const Output open = placeholder(f, {-1, -1, 4});
  f.variables.reuse();
  const Output y = dense(f.s, f.variables, open, 5, "fc");
  f.variables.reuse();
  const Output single = dense(f.s, f.variables, f.values({1, 2, 3, 4}, {4}), 5, "fc");
  CHECK(fixed.shape() == PartialShape{2, 3, 5});
  CHECK(y.shape() == PartialShape{-1, -1, 5});
  CHECK(single.shape() == PartialShape{5});
  f.initialise();
  const auto wanted = product(numbers(value), numbers(f.variable("fc/kernel")), {}, 4);
  check_close(f.floats(fixed), wanted);
  check_close(f.floats(single), product({1, 2, 3, 4}, numbers(f.variable("fc/kernel")), {}, 4));
  const auto got = f.session->run({{open, value}}, {y});
  REQUIRE(got.ok());
  CHECK((*got)[0].shape() == Shape{2, 3, 5});
  check_close({(*got)[0].values<float>().begin(), (*got)[0].values<float>().end()}, wanted);
  auto none = Tensor::zeros(DType::kFloat32, {0, 7, 4});
  REQUIRE(none.ok());
  const auto empty = f.session->run({{open, *none}}, {y});
  REQUIRE(empty.ok());
  CHECK((*empty)[0].shape() == Shape{0, 7, 5});
  check_gradients({2, 2, 3}, [](Fixture& g, Output x) { return dense(g.s, g.variables, x, 2, "fc"); });
}

TEST_CASE("layer_norm has mean 0 and variance 1 before scale and shift") {
  Fixture f;
  const Tensor value = random_tensor({2, 3, 6});
  const Output plain = layer_norm(f.s, f.variables, f.s.constant(value), "plain", {.scale = false, .center = false});
  const Output y = layer_norm(f.s, f.variables, f.s.constant(value), "norm", {.epsilon = 0.5f});
  CHECK(y.shape() == PartialShape{2, 3, 6});
  CHECK(f.variables.all().size() == 2);
  f.initialise();
  const auto normal = [&](double epsilon) {
    Numbers result;
    for (size_t row = 0; row < 6; ++row) {
      const float* x = value.data<float>() + row * 6;
      double mean = 0, square = 0;
      for (int i = 0; i < 6; ++i) mean += x[i] / 6.;
      for (int i = 0; i < 6; ++i) square += (x[i] - mean) * (x[i] - mean) / 6.;
      for (int i = 0; i < 6; ++i) result.push_back((x[i] - mean) / std::sqrt(square + epsilon));
    }
    return result;
  };
  check_close(f.floats(plain), normal(1e-5));
  check_close(f.floats(y), normal(0.5));
  const Output gamma = f.variables.read(f.s, f.variables.all()[0]), beta = f.variables.read(f.s, f.variables.all()[1]);
  Numbers wanted = normal(0.5);
  for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = wanted[i] * (i % 6 == 0 ? 7 : 2) + static_cast<double>(i % 6);
  const auto got = f.session->run(
      {{gamma, Tensor::of<float>({7, 2, 2, 2, 2, 2})}, {beta, Tensor::of<float>({0, 1, 2, 3, 4, 5})}}, {y});
  REQUIRE(got.ok());
  check_close({(*got)[0].values<float>().begin(), (*got)[0].values<float>().end()}, wanted);
  check_gradients({3, 4}, [](Fixture& g, Output x) { return layer_norm(g.s, g.variables, x, "norm"); });
}

TEST_CASE("layer_norm of 16-bit floats is computed in float32") {
  Fixture f;
  const Output x = cast(f.s, f.values({30000, -30000, 30000, -30000}, {1, 4}), DType::kFloat16);
  const Output y = layer_norm(f.s, f.variables, x, "norm");
  CHECK(y.dtype() == DType::kFloat16);
  f.initialise();
  check_close(f.floats(cast(f.s, y, DType::kFloat32)), {1, -1, 1, -1}, 1e-3);  // squares overflow float16
}

TEST_CASE("gelu by erf and by tanh") {
  Fixture f;
  const std::vector<float> at = {-6, -1.5f, -0.1f, 0, 0.3f, 1, 2.5f, 8};
  const Output x = f.s.constant(Tensor::of<float>(std::span<const float>(at), {8}));
  Numbers exact, near;
  for (const double v : at) {
    exact.push_back(v / 2 * (1 + std::erf(v / std::sqrt(2.))));
    near.push_back(v / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))));
  }
  check_close(f.floats(gelu(f.s, x)), exact, 1e-6);
  check_close(f.floats(gelu(f.s, x, true)), near, 1e-6);
  for (const bool approximate : {false, true})
    check_gradients({11}, [=](Fixture& g, Output in) { return gelu(g.s, in, approximate); });
}

TEST_CASE("position_embedding adds rows of a table, from any position on") {
  Fixture f;
  const Output x = placeholder(f, {-1, -1, 2});
  const Output first = placeholder(f, PartialShape{}, DType::kInt32);
  const Output y = position_embedding(f.s, f.variables, x, 5, "positions");
  f.variables.reuse();
  const Output later = position_embedding(f.s, f.variables, x, 5, "positions", {.first = first});
  f.variables.reuse();
  const Output fixed = position_embedding(f.s, f.variables, f.values({0, 0, 0, 0}, {2, 2}), 5, "positions");
  CHECK(y.shape() == PartialShape{-1, -1, 2});
  CHECK(fixed.shape() == PartialShape{2, 2});
  f.initialise();
  const Numbers table = numbers(f.variable("positions/table"));
  check_close(f.floats(fixed), {table[0], table[1], table[2], table[3]});
  const Tensor value = random_tensor({2, 3, 2});
  const auto got = f.session->run({{x, value}, {first, Tensor::scalar<int32_t>(2)}}, {y, later});
  REQUIRE(got.ok());
  for (size_t i = 0; i < 12; ++i) {
    CHECK((*got)[0].data<float>()[i] == Approx(numbers(value)[i] + table[i % 6]));
    CHECK((*got)[1].data<float>()[i] == Approx(numbers(value)[i] + table[i % 6 + 4]));
  }
  CHECK_FALSE(f.session->run({{x, value}, {first, Tensor::scalar<int32_t>(3)}}, {later}).ok());
  CHECK_FALSE(f.session->run({{x, value}, {first, Tensor::scalar<int32_t>(-1)}}, {later}).ok());
  CHECK_FALSE(f.session->run({{x, random_tensor({1, 6, 2})}}, {y}).ok());
  check_gradients({2, 3}, [](Fixture& g, Output in) { return position_embedding(g.s, g.variables, in, 4, "p"); });
}

TEST_CASE("dot_product_attention weighs values by softmax, as masks allow") {
  Fixture f;
  const Tensor q = random_tensor({3, 4}, 1), k = random_tensor({5, 4}, 2), v = random_tensor({5, 2}, 3);
  const Output qs = f.s.constant(q), ks = f.s.constant(k), vs = f.s.constant(v);
  const auto wanted = [&](auto sees) { return attended(numbers(q), numbers(k), numbers(v), 4, 2, sees); };
  const Output all = dot_product_attention(f.s, qs, ks, vs);
  CHECK(all.shape() == PartialShape{3, 2});
  check_close(f.floats(all), wanted([](size_t, size_t) { return true; }));
  const auto causal = [](size_t i, size_t j) { return j <= i + 2; };
  check_close(f.floats(dot_product_attention(f.s, qs, ks, vs, {.causal = true})), wanted(causal));
  const Output mask = f.s.constant(Tensor::of<bool>({false, true, true, false, false}, {1, 5}));
  check_close(f.floats(dot_product_attention(f.s, qs, ks, vs, {.mask = mask})),
              wanted([](size_t, size_t j) { return j == 1 || j == 2; }));
  check_close(f.floats(dot_product_attention(f.s, qs, ks, vs, {.causal = true, .mask = mask})),
              wanted([&](size_t i, size_t j) { return (j == 1 || j == 2) && causal(i, j); }));
  const Output nothing = f.s.constant(Tensor::of<bool>({false, true, true}, {3, 1}));
  check_close(f.floats(dot_product_attention(f.s, qs, ks, vs, {.mask = nothing})),
              wanted([](size_t i, size_t) { return i > 0; }));

  const Output open = placeholder(f, {-1, 4});
  const Output later = dot_product_attention(f.s, open, ks, vs, {.causal = true});
  const auto got = f.session->run({{open, q}}, {later});
  REQUIRE(got.ok());
  check_close({(*got)[0].values<float>().begin(), (*got)[0].values<float>().end()}, wanted(causal));
}

TEST_CASE("multi_head_attention is projections around attention of each head") {
  Fixture f;
  const size_t batch = 2, time = 3, keys = 4, width = 6, heads = 2, size = 3;
  const Tensor x = random_tensor({2, 3, 6}, 1), context = random_tensor({2, 4, 5}, 2);
  const Output self = multi_head_attention(f.s, f.variables, f.s.constant(x), 2, "self", {.causal = true}).outputs;
  const Output cross =
      multi_head_attention(f.s, f.variables, f.s.constant(x), 2, "cross", {.context = f.s.constant(context)}).outputs;
  CHECK(self.shape() == PartialShape{2, 3, 6});
  CHECK(cross.shape() == PartialShape{2, 3, 6});
  f.initialise();
  const auto wanted = [&](const std::string& name, const Tensor& from, size_t n, size_t in, bool causal) {
    const auto kernel = [&](const char* part) { return numbers(f.variable(name + part + "/kernel")); };
    const Numbers q = product(numbers(x), kernel("/query"), {}, width);
    const Numbers k = product(numbers(from), kernel("/key"), {}, in),
                  v = product(numbers(from), kernel("/value"), {}, in);
    Numbers all(batch * time * width);
    for (size_t b = 0; b < batch; ++b)
      for (size_t h = 0; h < heads; ++h) {
        const auto part = [&](const Numbers& of, size_t steps) {
          Numbers result;
          for (size_t t = 0; t < steps; ++t)
            for (size_t d = 0; d < size; ++d) result.push_back(of[(b * steps + t) * width + h * size + d]);
          return result;
        };
        const Numbers y = attended(part(q, time), part(k, n), part(v, n), size, size,
                                   [&](size_t i, size_t j) { return !causal || j <= i; });
        for (size_t t = 0; t < time; ++t)
          for (size_t d = 0; d < size; ++d) all[(b * time + t) * width + h * size + d] = y[t * size + d];
      }
    return product(all, kernel("/output"), {}, width);
  };
  check_close(f.floats(self), wanted("self", x, time, width, true));
  check_close(f.floats(cross), wanted("cross", context, keys, 5, false));
  check_gradients({1, 3, 4}, [](Fixture& g, Output in) {
    return multi_head_attention(g.s, g.variables, in, 2, "attention", {.causal = true}).outputs;
  });
  check_gradients({1, 2, 4}, [](Fixture& g, Output in) {
    const Output from = g.s.constant(random_tensor({1, 3, 2}, 4));
    return multi_head_attention(g.s, g.variables, in, 1, "attention", {.context = from, .head_size = 3}).outputs;
  });
}

TEST_CASE("multi_head_attention goes on from the keys and values before, with open batch and time") {
  Fixture f;
  const Tensor x = random_tensor({2, 5, 4});
  const auto steps = [&](int64_t from, int64_t n) {
    return f.s.op("Slice", {f.s.constant(x), f.s.constant(Tensor::of<int64_t>({0, from, 0})),
                            f.s.constant(Tensor::of<int64_t>({2, n, 4}))});
  };
  const auto layer = [&](Output in, const AttentionState& past) {
    f.variables.reuse();
    return multi_head_attention(f.s, f.variables, in, 2, "attention", {.causal = true, .past = past});
  };
  const Output whole = layer(f.s.constant(x), {}).outputs;
  const AttentionResult before = layer(steps(0, 3), {});
  const AttentionResult after = layer(steps(3, 2), before.state);
  CHECK(after.state.keys.shape() == PartialShape{2, 2, 5, 2});
  const Output open = placeholder(f, {-1, -1, 4});
  const Output same = layer(open, {}).outputs;
  CHECK(same.shape() == PartialShape{-1, -1, 4});
  f.initialise();
  const auto all = f.floats(whole), last = f.floats(after.outputs);
  for (size_t b = 0; b < 2; ++b)
    for (size_t i = 0; i < 8; ++i) CHECK(last[b * 8 + i] == Approx(all[b * 20 + 12 + i]).margin(1e-6));
  const auto got = f.session->run({{open, x}}, {same});
  REQUIRE(got.ok());
  check_close({(*got)[0].values<float>().begin(), (*got)[0].values<float>().end()}, Numbers(all.begin(), all.end()),
              1e-6);
}

TEST_CASE("lstm takes any batch") {
  Fixture f;
  const Output open = placeholder(f, {-1, 3, 2});
  const LstmResult y = lstm(f.s, f.variables, open, 4, "cell");
  CHECK(y.outputs.shape() == PartialShape{-1, 3, 4});
  const Tensor x = random_tensor({5, 3, 2});
  f.variables.reuse();
  const LstmResult fixed = lstm(f.s, f.variables, f.s.constant(x), 4, "cell");
  f.variables.reuse();
  const LstmResult by_time = lstm(f.s, f.variables, placeholder(f, {3, -1, 2}), 4, "cell", {.time_major = true});
  CHECK(by_time.last.shape() == PartialShape{-1, 4});
  f.initialise();
  const auto got = f.session->run({{open, x}}, {y.outputs, y.cell});
  REQUIRE(got.ok());
  CHECK((*got)[0].identical(f.run({fixed.outputs})[0]));
  CHECK((*got)[1].identical(f.run({fixed.cell})[0]));
  const auto more = f.session->run({{open, random_tensor({1, 3, 2})}}, {y.outputs});
  REQUIRE(more.ok());
  CHECK((*more)[0].shape() == Shape{1, 3, 4});
}

TEST_CASE("the passes of an inference change a transformer by rounding alone, its weights variables or constants") {
  Fixture f;
  const Output x = placeholder(f, {-1, 9, 64});
  const Output padding = placeholder(f, {-1, 1, 1, 9}, DType::kBool);
  const auto half = [&](Output h, const std::string& name, const AttentionOptions& options, bool approximate) {
    h = h +
        multi_head_attention(f.s, f.variables, layer_norm(f.s, f.variables, h, name + "_1"), 4, name, options).outputs;
    const Output up = dense(f.s, f.variables, layer_norm(f.s, f.variables, h, name + "_2"), 256, name + "_up");
    return h + dense(f.s, f.variables, gelu(f.s, up, approximate), 64, name + "_down");
  };
  Output y = half(x, "causal", {.causal = true}, true);
  y = half(y, "padded", {.mask = padding}, false);
  y = half(y, "both", {.causal = true, .mask = padding}, true);
  f.initialise();
  Tensor mask = *Tensor::make(DType::kBool, {3, 1, 1, 9});
  for (int64_t i = 0; i < mask.elements(); ++i) mask.mutable_data<bool>()[i] = i % 9 < 4 + i / 9;
  const std::vector<Feed> feeds = {{x, random_tensor({3, 9, 64})}, {padding, mask}};
  Session plain(*f.engine, f.graph, {.passes = GraphPasses::none()});
  const auto wanted = plain.run(feeds, {y}), got = f.session->run(feeds, {y});
  REQUIRE(wanted.ok());
  REQUIRE(got.ok());
  auto weights = f.engine->snapshot().get();
  REQUIRE(weights.ok());
  const auto bytes = freeze_graph(f.graph, {y}, weights->variables);
  REQUIRE(bytes.ok());
  Graph frozen(f.engine->ops());
  REQUIRE(from_graph_def(*bytes, frozen).ok());
  const auto at = [&](const Output& o) { return frozen.find(o.node->name())->out(o.port); };
  const auto constant = Session(*f.engine, frozen).run({{at(x), feeds[0].value}, {at(padding), mask}}, {at(y)});
  REQUIRE(constant.ok());
  for (int64_t i = 0; i < (*wanted)[0].elements(); ++i) {
    const float value = (*wanted)[0].data<float>()[i];
    REQUIRE((*got)[0].data<float>()[i] == Approx(value).margin(1e-4));
    REQUIRE((*constant)[0].data<float>()[i] == Approx(value).margin(1e-4));
  }
}

TEST_CASE("layers of transformers refuse what does not fit, with their name and the values") {
  const Tensor x = random_tensor({1, 2, 6});
  const auto attention = [&](int64_t heads, const AttentionOptions& options) {
    return fault([&](Fixture& f) {
      CHECK_FALSE(multi_head_attention(f.s, f.variables, f.s.constant(x), heads, "attn", options).outputs);
    });
  };
  CHECK_THAT(attention(4, {}), Contains("'attn'") && Contains("4 heads") && Contains("[1,2,6]"));
  for (const int64_t heads : {int64_t{0}, int64_t{-2}, INT64_MAX})
    CHECK_THAT(attention(heads, {.head_size = 3}), Contains("'attn'") && Contains(std::to_string(heads)));
  CHECK_THAT(attention(2, {.head_size = -1}), Contains("2 heads of -1"));
  CHECK_THAT(attention(2, {.dropout = 2, .training = true}), Contains("rate 2"));
  const auto with = [&](auto change) {
    return fault([&](Fixture& f) {
      AttentionOptions options;
      change(f, options);
      CHECK_FALSE(multi_head_attention(f.s, f.variables, f.s.constant(x), 2, "attn", options).outputs);
    });
  };
  CHECK_THAT(with([](Fixture& f, AttentionOptions& o) { o.context = f.values({1, 2}, {1, 2}); }), Contains("[1,2]"));
  CHECK_THAT(with([](Fixture& f, AttentionOptions& o) { o.mask = f.values({1}, {1}); }), Contains("not bool"));
  CHECK_THAT(with([](Fixture& f, AttentionOptions& o) { o.past.keys = f.values({1}, {1}); }), Contains("keys alone"));
  CHECK_THAT(with([](Fixture& f, AttentionOptions& o) {
               o.past.keys = o.past.values = f.s.constant(random_tensor({1, 3, 2, 3}));
             }),
             Contains("[1,3,2,3]") && Contains("[1,2,?,3]"));
  CHECK_THAT(with([](Fixture& f, AttentionOptions& o) {
               o.mask = f.s.constant(Tensor::of<bool>({true, true, true, true, true}));
             }),
             Contains("[5]"));

  const auto scalar = [](Fixture& f) { return f.s.constant(1.f); };
  CHECK_THAT(fault([&](Fixture& f) { layer_norm(f.s, f.variables, scalar(f), "n"); }),
             Contains("'n'") && Contains("[]"));
  CHECK_THAT(fault([&](Fixture& f) { layer_norm(f.s, f.variables, {}, "n"); }), Contains("empty"));
  for (const float epsilon : {-1.f, std::nanf(""), INFINITY})
    CHECK_THAT(fault([&](Fixture& f) { layer_norm(f.s, f.variables, f.values({1}, {1}), "n", {.epsilon = epsilon}); }),
               Contains("epsilon"));
  CHECK_THAT(fault([&](Fixture& f) { gelu(f.s, {}); }), Contains("empty"));
  CHECK_THAT(fault([&](Fixture& f) { gelu(f.s, f.s.constant(1)); }), Contains("int32, not a float"));
  CHECK_THAT(fault([&](Fixture& f) { position_embedding(f.s, f.variables, f.s.constant(x), 1, "p"); }),
             Contains("'p'") && Contains("1 positions") && Contains("[1,2,6]"));
  CHECK_THAT(fault([&](Fixture& f) { position_embedding(f.s, f.variables, f.values({1}, {1}), 3, "p"); }),
             Contains("rank 2"));
  CHECK_THAT(fault([&](Fixture& f) {
               position_embedding(f.s, f.variables, f.s.constant(x), 3, "p", {.first = f.s.constant(1.f)});
             }),
             Contains("not an int scalar"));
  CHECK_THAT(fault([&](Fixture& f) { dot_product_attention(f.s, f.s.constant(x), {}, f.s.constant(x)); }),
             Contains("keys") && Contains("empty"));
  CHECK_THAT(fault([&](Fixture& f) {
               dot_product_attention(f.s, f.s.constant(x), f.s.constant(random_tensor({1, 2, 5})), f.s.constant(x));
             }),
             Contains("inner sizes"));
  CHECK_THAT(fault([&](Fixture& f) { dense(f.s, f.variables, scalar(f), 2, "fc"); }), Contains("'fc'"));
  CHECK_THAT(fault([&](Fixture& f) {
               dense(f.s, f.variables, f.values({}, {2, 0}), 2, "fc");
             }),
             Contains("at least 1"));
}

}  // namespace
}  // namespace troupe::nn
