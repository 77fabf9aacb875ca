// SPDX-License-Identifier: Apache-2.0
// _FusedLayerNorm and _FusedAttention against the nodes one by one; bad shapes and attributes.
#include <catch2/catch.hpp>

#include <cmath>
#include <random>

#include "tests/ops/evaluate.h"

using namespace troupe;

namespace {

struct TransformerOps {
  explicit TransformerOps(int threads = 1) : evaluator(threads) {}

  testing::Evaluator evaluator;
  Graph graph{testing::op_library()->ops};
  Scope s{graph};
  std::mt19937 random{7};

  template <class T> Output values(const Shape& shape) {
    Tensor t = *Tensor::make(dtype_of<T>, shape);
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < t.elements(); ++i) t.mutable_data<T>()[i] = static_cast<T>(normal(random));
    return s.constant(std::move(t));
  }
  Output mask(const Shape& shape) {
    Tensor t = *Tensor::make(DType::kBool, shape);
    for (int64_t i = 0; i < t.elements(); ++i) t.mutable_data<bool>()[i] = random() % 3 > 0;
    return s.constant(std::move(t));
  }
  template <class T> void check(Output got, Output wanted, double margin) {
    INFO((s.ok() ? "" : s.status().error().str()));
    REQUIRE(s.ok());
    auto r = evaluator.run({got, wanted});
    INFO((r.ok() ? "" : r.error().str()));
    REQUIRE(r.ok());
    REQUIRE((*r)[0].shape() == (*r)[1].shape());
    CHECK(got.shape().compatible(PartialShape((*r)[0].shape())));
    for (int64_t i = 0; i < (*r)[0].elements(); ++i) {
      const T a = (*r)[0].data<T>()[i], b = (*r)[1].data<T>()[i];
      INFO(i);
      REQUIRE((std::isnan(a) == std::isnan(b) && (std::isnan(a) || std::fabs(a - b) <= margin)));
    }
  }

  Output norm(std::vector<Output> inputs, float epsilon, bool scale, bool center) {
    const auto args = static_cast<int64_t>(inputs.size()) - 1;
    return s.op("_FusedLayerNorm", std::move(inputs),
                {{"num_args", args}, {"epsilon", epsilon}, {"scale", scale}, {"center", center}});
  }
  struct Form {
    std::string layouts = "hhhh";
    float scale = 1, hidden = -1e9f;
    Output added = {}, mask = {};
    bool broadcasts = true;
  };
  Output attention(const Output& q, const Output& k, const Output& v, const Form& form) {
    std::vector<Output> inputs = {q, k, v};
    if (form.added) inputs.push_back(form.added);
    if (form.mask) inputs.push_back(form.mask);
    return s.op("_FusedAttention", std::move(inputs),
                {{"num_added", int64_t{form.added ? 1 : 0}},
                 {"num_masks", int64_t{form.mask ? 1 : 0}},
                 {"scale", form.scale},
                 {"hidden", form.hidden},
                 {"layouts", form.layouts},
                 {"broadcasts", form.broadcasts}});
  }
  Output plain(Output q, Output k, Output v, const Form& form) {
    const auto swapped = [&](Output o, char layout) {
      return layout == 'h' ? o : s.op("Transpose", {o, s.constant(Tensor::of<int32_t>({0, 2, 1, 3}))});
    };
    q = swapped(q, form.layouts[0]), k = swapped(k, form.layouts[1]), v = swapped(v, form.layouts[2]);
    Output scores = s.op("Mul", {s.op("BatchMatMulV2", {q, k}, {{"adj_y", true}}), s.constant(form.scale)});
    if (form.added) scores = s.op("AddV2", {scores, form.added});
    if (form.mask) scores = s.op("SelectV2", {form.mask, scores, s.constant(form.hidden)});
    return swapped(s.op("BatchMatMulV2", {s.op("Softmax", {scores}), v}), form.layouts[3]);
  }
};

}  // namespace

TEMPLATE_TEST_CASE("a fused layer norm gives what its nodes give", "", float, double) {
  TransformerOps f;
  for (const Shape& shape : {Shape{2, 3, 37}, Shape{5, 16}, Shape{8}, Shape{3, 1}, Shape{0, 4}, Shape{300, 768}}) {
    const int64_t n = shape.dim(-1);
    const Output x = f.values<TestType>(shape), gamma = f.values<TestType>({n}), beta = f.values<TestType>({1, n});
    const auto number = [&](double v) { return f.s.constant(Tensor::scalar(static_cast<TestType>(v))); };
    const Output last = f.s.constant(Tensor::of<int32_t>({-1}));
    const auto mean = [&](Output of) { return f.s.op("Mean", {of, last}, {{"keep_dims", true}}); };
    const Output centered = f.s.op("Sub", {x, mean(x)});
    const Output variance = f.s.op("AddV2", {mean(f.s.op("Square", {centered})), number(0.25)});
    const Output plain = f.s.op("Mul", {centered, f.s.op("Rsqrt", {variance})});
    const Output scaled = f.s.op("Mul", {plain, gamma});
    const double margin = sizeof(TestType) == 4 ? 1e-5 : 1e-12;
    f.check<TestType>(f.norm({x}, 0.25f, false, false), plain, margin);
    f.check<TestType>(f.norm({x, gamma}, 0.25f, true, false), scaled, margin);
    if (shape.rank() < 2) continue;
    f.check<TestType>(f.norm({x, beta}, 0.25f, false, true), f.s.op("AddV2", {plain, beta}), margin);
    f.check<TestType>(f.norm({x, gamma, beta}, 0.25f, true, true), f.s.op("AddV2", {scaled, beta}), margin);
  }
}

TEST_CASE("a fused layer norm of what is not finite is NaN in its row alone") {
  TransformerOps f;
  const Output x = f.s.constant(Tensor::of<float>({1, NAN, 2, INFINITY, 1, 2, 1, 2, 3}, {3, 3}));
  auto r = f.evaluator.run({f.norm({x}, 0, false, false)});
  REQUIRE(r.ok());
  for (int i = 0; i < 6; ++i) CHECK(std::isnan((*r)[0].data<float>()[i]));
  CHECK((*r)[0].data<float>()[6] == Approx(-std::sqrt(1.5)));
}

TEST_CASE("fused attention gives what its nodes give, in every layout, with and without masks") {
  for (const int threads : {1, 3}) {
    TransformerOps f(threads);
    struct Sizes {
      int64_t batch, heads, m, n, size, width;
    };
    for (const Sizes& z : {Sizes{2, 3, 5, 7, 4, 6}, {1, 2, 1, 40, 16, 16}, {1, 1, 300, 130, 8, 8}, {2, 1, 3, 1, 2, 1}})
      for (const std::string layouts : {"hhhh", "tttt", "thht", "htth"}) {
        const auto tensor = [&](char layout, int64_t time, int64_t size) {
          return f.values<float>(layout == 'h' ? Shape{z.batch, z.heads, time, size}
                                               : Shape{z.batch, time, z.heads, size});
        };
        const Output q = tensor(layouts[0], z.m, z.size), k = tensor(layouts[1], z.n, z.size),
                     v = tensor(layouts[2], z.n, z.width);
        for (const TransformerOps::Form& form : {TransformerOps::Form{layouts},
                                                 {layouts, 0.5f, -1e9f, {}, f.mask({z.m, z.n})},
                                                 {layouts, 0.5f, -3, {}, f.mask({z.batch, 1, 1, z.n})},
                                                 {layouts, 2, -3, f.values<float>({z.heads, z.m, 1}), f.mask({1, 1})},
                                                 {layouts, 1, 0, f.values<float>({z.batch, 1, 1, z.n}), {}}})
          f.check<float>(f.attention(q, k, v, form), f.plain(q, k, v, form), 1e-4);
      }
  }
}

TEST_CASE("fused attention broadcasts batch and heads, and takes tensors without elements") {
  TransformerOps f;
  const Output q = f.values<float>({1, 2, 3, 4}), k = f.values<float>({5, 1, 6, 4}), v = f.values<float>({5, 2, 6, 2});
  f.check<float>(f.attention(q, k, v, {}), f.plain(q, k, v, {}), 1e-5);
  for (const auto& [a, b, c] : {std::tuple(Shape{0, 2, 3, 4}, Shape{0, 2, 6, 4}, Shape{0, 2, 6, 2}),
                                {Shape{1, 2, 3, 4}, Shape{1, 2, 0, 4}, Shape{1, 2, 0, 2}},
                                {Shape{1, 2, 3, 0}, Shape{1, 2, 6, 0}, Shape{1, 2, 6, 2}}}) {
    const Output x = f.values<float>(a), y = f.values<float>(b), z = f.values<float>(c);
    f.check<float>(f.attention(x, y, z, {}), f.plain(x, y, z, {}), 1e-5);
  }
}

TEST_CASE("fused attention in place of Einsums refuses batches and heads that differ") {
  struct Case {
    Shape q, k, v, added;
    bool fits;
  };
  for (const Case& z : {Case{{2, 2, 3, 4}, {2, 2, 6, 4}, {2, 2, 6, 2}, {1, 1, 3, 6}, true},
                        {{1, 2, 3, 4}, {1, 2, 6, 4}, {5, 2, 6, 2}, {5, 1, 1, 6}, true},  // as the sum broadcasts
                        {{1, 2, 3, 4}, {5, 2, 6, 4}, {5, 2, 6, 2}, {6}, false},
                        {{5, 2, 3, 4}, {1, 2, 6, 4}, {5, 2, 6, 2}, {6}, false},
                        {{5, 1, 3, 4}, {5, 2, 6, 4}, {5, 2, 6, 2}, {6}, false},
                        {{5, 2, 3, 4}, {5, 2, 6, 4}, {1, 2, 6, 2}, {6}, false},
                        {{1, 2, 3, 4}, {1, 2, 6, 4}, {5, 2, 6, 2}, {6}, false},
                        {{1, 2, 3, 4}, {1, 2, 6, 4}, {1, 2, 6, 2}, {5, 1, 1, 6}, false}}) {
    TransformerOps f;
    const Output q = f.values<float>(z.q), k = f.values<float>(z.k), v = f.values<float>(z.v);
    const TransformerOps::Form form{.added = f.values<float>(z.added), .broadcasts = false};
    if (z.fits) {
      f.check<float>(f.attention(q, k, v, form), f.plain(q, k, v, form), 1e-5);
      continue;
    }
    const auto refused = f.evaluator.run({f.attention(q, k, v, form)});
    REQUIRE_FALSE(refused.ok());
    CHECK_THAT(refused.error().message, Catch::Contains(z.q.str()) && Catch::Contains(z.k.str()) &&
                                            Catch::Contains(z.v.str()) && Catch::Contains("do not broadcast"));
  }
}

TEST_CASE("what is added to scores of fused attention, or hides them, may have more batches, heads and rows") {
  TransformerOps f(2);
  struct Case {
    Shape q, k, v, added, mask;
  };
  for (const Case& z : {Case{{1, 2, 3, 4}, {1, 2, 6, 4}, {1, 2, 6, 2}, {5, 1, 1, 6}, {}},
                        {{2, 1, 3, 4}, {2, 1, 6, 4}, {2, 1, 6, 2}, {}, {3, 3, 6}},
                        {{2, 2, 1, 4}, {2, 2, 6, 4}, {2, 2, 6, 2}, {5, 6}, {2, 1, 5, 1}},
                        {{2, 2, 3, 4}, {2, 2, 1, 4}, {2, 2, 6, 2}, {6}, {}},
                        {{1, 1, 1, 4}, {1, 1, 1, 4}, {1, 1, 6, 2}, {2, 1, 5, 1}, {3, 1, 6}}}) {
    TransformerOps::Form form{"hhhh", 0.5f, -4};
    if (z.added.rank() > 0) form.added = f.values<float>(z.added);
    if (z.mask.rank() > 0) form.mask = f.mask(z.mask);
    const Output q = f.values<float>(z.q), k = f.values<float>(z.k), v = f.values<float>(z.v);
    f.check<float>(f.attention(q, k, v, form), f.plain(q, k, v, form), 1e-5);
  }
}

TEST_CASE("NaN and infinity in fused attention go where they go in its nodes") {
  TransformerOps f;
  Tensor scores = *Tensor::zeros(DType::kFloat32, {3, 17});
  scores.mutable_data<float>()[3] = NAN;
  scores.mutable_data<float>()[17 + 5] = -INFINITY;
  for (int i = 0; i < 17; ++i) scores.mutable_data<float>()[34 + i] = -INFINITY;
  const Output q = f.values<float>({1, 1, 3, 4}), k = f.values<float>({1, 1, 17, 4}),
               v = f.values<float>({1, 1, 17, 2});
  TransformerOps::Form form;
  form.added = f.s.constant(scores);
  f.check<float>(f.attention(q, k, v, form), f.plain(q, k, v, form), 1e-5);
  form.added = {};
  form.hidden = -3.4e38f;
  form.mask = f.s.constant(*Tensor::zeros(DType::kBool, {1, 17}));  // nothing is seen: the mean
  f.check<float>(f.attention(q, k, v, form), f.plain(q, k, v, form), 1e-5);
}

TEST_CASE("shapes and attributes that do not fit are errors of the fused nodes of transformers") {
  const auto fault = [](auto build) {
    TransformerOps f;
    const Output y = build(f);
    if (!f.s.ok()) return f.s.status().error().message;
    auto r = f.evaluator.run({y});
    REQUIRE_FALSE(r.ok());
    return r.error().message;
  };
  using Catch::Contains;
  const auto with = [&](const Shape& q, const Shape& k, const Shape& v, const std::string& layouts = "hhhh",
                        const Shape& mask = {}) {
    return fault([&](TransformerOps& f) {
      TransformerOps::Form form{layouts};
      if (mask.rank() > 0) form.mask = f.mask(mask);
      return f.attention(f.values<float>(q), f.values<float>(k), f.values<float>(v), form);
    });
  };
  CHECK_THAT(with({2, 3, 4}, {1, 2, 3, 4}, {1, 2, 3, 4}), Contains("[2,3,4]"));
  CHECK_THAT(with({1, 2, 3, 4}, {1, 2, 3, 5}, {1, 2, 3, 4}), Contains("[1,2,3,4]") && Contains("[1,2,3,5]"));
  CHECK_THAT(with({1, 2, 3, 4}, {1, 2, 3, 4}, {1, 2, 5, 4}), Contains("[1,2,5,4]"));
  CHECK_THAT(with({1, 2, 3, 4}, {1, 3, 3, 4}, {1, 2, 3, 4}), Contains("[1,2]") && Contains("[1,3]"));
  CHECK_THAT(with({1, 2, 3, 4}, {1, 2, 3, 4}, {1, 2, 3, 4}, "hhh"), Contains("'hhh'"));
  CHECK_THAT(with({1, 2, 3, 4}, {1, 2, 3, 4}, {1, 2, 3, 4}, "hhhx"), Contains("'hhhx'"));
  CHECK_THAT(with({1, 2, 3, 4}, {1, 2, 3, 4}, {1, 2, 3, 4}, "hhhh", {4, 3}),
             Contains("[4,3]") && Contains("[1,2,3,3]"));
  CHECK_THAT(with({1, 2, 3, 4}, {1, 2, 3, 4}, {1, 2, 3, 4}, "hhhh", {1, 1, 1, 1, 3}), Contains("[1,1,1,1,3]"));
  const auto norm = [&](const Shape& x, const Shape& gamma, bool scale, bool center) {
    return fault([&](TransformerOps& f) {
      return f.norm({f.values<float>(x), f.values<float>(gamma)}, 1, scale, center);
    });
  };
  CHECK_THAT(norm({2, 3}, {2}, true, false), Contains("[2]") && Contains("[2,3]"));
  CHECK_THAT(norm({2, 3}, {3}, true, true), Contains("num_args is 1"));
  CHECK_THAT(norm({2, 3}, {3}, false, false), Contains("num_args is 1"));
  CHECK_THAT(norm({}, {1}, true, false), Contains("rank"));
}
