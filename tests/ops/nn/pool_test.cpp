// SPDX-License-Identifier: Apache-2.0
// Pools against loops, in both layouts, with gradients and bad input.
#include "tests/ops/check_op.h"

namespace troupe::testing {
namespace {

struct PoolCase {
  Shape in;  // [batch, height, width, channels]
  int64_t size, stride;
  std::string padding;
};
const std::vector<PoolCase> kPoolCases = {
    {{3, 8, 8, 6}, 2, 2, "VALID"}, {{2, 9, 9, 21}, 3, 3, "VALID"},   {{2, 4, 40, 1}, 2, 2, "VALID"},
    {{2, 4, 6, 11}, 2, 2, "SAME"}, {{2, 24, 24, 64}, 2, 2, "VALID"}, {{2, 7, 9, 3}, 3, 2, "SAME"},
    {{1, 7, 7, 5}, 3, 1, "VALID"}, {{2, 5, 5, 17}, 1, 2, "VALID"},   {{2, 5, 6, 2}, 2, 3, "SAME"}};

Attrs attrs_of_pool(const PoolCase& k, bool first) {
  const auto list = [&](int64_t v) {
    return first ? std::vector<int64_t>{1, 1, v, v} : std::vector<int64_t>{1, v, v, 1};
  };
  return Attrs{{"ksize", list(k.size)},
               {"strides", list(k.stride)},
               {"padding", k.padding},
               {"data_format", std::string(first ? "NCHW" : "NHWC")}};
}

struct PoolReference {
  std::vector<double> max, mean, max_dx, mean_dx;
  Shape out;
  Tensor dy;
};

PoolReference pool_reference(const PoolCase& k, bool first, const Tensor& x) {
  const int64_t h = k.in[1], w = k.in[2], c = k.in[3];
  const auto out = [&](int64_t n) {
    return k.padding == "SAME" ? (n + k.stride - 1) / k.stride : (n - k.size) / k.stride + 1;
  };
  const auto pad = [&](int64_t n) {
    return k.padding == "SAME" ? std::max<int64_t>(0, (out(n) - 1) * k.stride + k.size - n) / 2 : 0;
  };
  const int64_t oh = out(h), ow = out(w);
  const auto at = [&](int64_t n, int64_t y, int64_t xx, int64_t ch, int64_t hh, int64_t ww) {
    return first ? ((n * c + ch) * hh + y) * ww + xx : ((n * hh + y) * ww + xx) * c + ch;
  };
  PoolReference r;
  r.out = first ? Shape{k.in[0], c, oh, ow} : Shape{k.in[0], oh, ow, c};
  r.dy = random_tensor<float>(r.out, 5);
  const std::vector<double> v = doubles(x), g = doubles(r.dy);
  r.max.resize(g.size());
  r.mean.resize(g.size());
  r.max_dx.resize(v.size());
  r.mean_dx.resize(v.size());
  for (int64_t n = 0; n < k.in[0]; ++n)
    for (int64_t ch = 0; ch < c; ++ch)
      for (int64_t oy = 0; oy < oh; ++oy)
        for (int64_t ox = 0; ox < ow; ++ox) {
          std::vector<int64_t> places;
          for (int64_t y = oy * k.stride - pad(h); y < oy * k.stride - pad(h) + k.size; ++y)
            for (int64_t xx = ox * k.stride - pad(w); xx < ox * k.stride - pad(w) + k.size; ++xx)
              if (y >= 0 && y < h && xx >= 0 && xx < w) places.push_back(at(n, y, xx, ch, h, w));
          const int64_t o = at(n, oy, ox, ch, oh, ow);
          int64_t best = places[0];
          for (int64_t p : places) {
            if (v[p] > v[best]) best = p;
            r.mean[o] += v[p] / places.size();
            r.mean_dx[p] += g[o] / places.size();
          }
          r.max[o] = v[best];
          r.max_dx[best] += g[o];
        }
  return r;
}

TEST_CASE("Pools and their gradients agree with loops") {
  for (size_t i = 0; i < kPoolCases.size(); ++i)
    for (bool first : {false, true})
      for (int threads : {1, 2}) {
        const PoolCase& k = kPoolCases[i];
        INFO("case " << i << (first ? " NCHW" : " NHWC"));
        Tensor x = random_tensor<float>(first ? Shape{k.in[0], k.in[3], k.in[1], k.in[2]} : k.in, 1);
        for (int64_t j = 0; j < x.elements(); j += 3)
          x.mutable_data<float>()[j] = 0.5f;  // equal values: the first wins
        const PoolReference want = pool_reference(k, first, x);
        const Attrs attrs = attrs_of_pool(k, first);
        const Tensor y = must(apply("MaxPool", {x}, attrs, 0, threads));
        REQUIRE(y.shape() == want.out);
        check_close(doubles(y), want.max, 0);
        check_close(doubles(must(apply("AvgPool", {x}, attrs, 0, threads))), want.mean, 1e-5);
        check_close(doubles(must(apply("MaxPoolGrad", {x, y, want.dy}, attrs, 0, threads))), want.max_dx, 1e-5);
        std::vector<int32_t> sizes(x.shape().begin(), x.shape().end());
        const Tensor shape = Tensor::of<int32_t>(std::span<const int32_t>(sizes));
        check_close(doubles(must(apply("AvgPoolGrad", {shape, want.dy}, attrs, 0, threads))), want.mean_dx, 1e-5);
      }
}

TEST_CASE("Pools' gradients agree with finite differences") {
  for (bool first : {false, true}) {
    const Attrs attrs = attrs_of_pool({{}, 2, 1, "SAME"}, first);
    const Tensor x = random_tensor<double>({2, 4, 3, 2}, 1);
    check_gradients("MaxPool", {x}, attrs);
    check_gradients("MaxPool", {random_tensor<double>({2, 4, 4, 6}, 1)}, attrs_of_pool({{}, 2, 2, "VALID"}, first));
    check_gradients("AvgPool", {x}, attrs);
    const Tensor g = random_tensor<double>({2, 4, 3, 2}, 2);
    check_gradients("AvgPoolGrad", {Tensor::of<int32_t>({2, 4, 3, 2}), g}, attrs, {1});
    const Tensor y = must(apply("MaxPool", {x}, attrs));
    check_gradients("MaxPoolGrad", {x, y, random_tensor<double>(y.shape(), 2)}, attrs, {2});
    check_gradients("MaxPoolGradGrad", {x, y, g}, attrs, {2});
    const Tensor two = first ? Tensor::of<int32_t>({1, 1, 2, 2}) : Tensor::of<int32_t>({1, 2, 2, 1});
    const Tensor one = Tensor::of<int32_t>({1, 1, 1, 1});
    Attrs second;
    for (const char* name : {"padding", "data_format"}) second.set(name, *attrs.find(name));
    check_gradients("MaxPoolV2", {x, two, one}, second, {0});
    check_gradients("MaxPoolGradV2", {x, y, random_tensor<double>(y.shape(), 2), two, one}, second, {2});
    check_gradients("MaxPoolGradGradV2", {x, y, g, two, one}, second, {2});
    const auto refused = apply_unshaped("MaxPoolV2", {x, Tensor::of<int32_t>({2, 2}), one}, second);
    REQUIRE_FALSE(refused.ok());
    CHECK_THAT(refused.error().str(), Catch::Contains("ksize must be 4 values"));
    CHECK_FALSE(apply_unshaped("MaxPoolV2", {x, two, Tensor::of<int32_t>({1, 0, 1, 1})}, second).ok());
  }
}

TEST_CASE("MaxPoolGradGrad reads the first place of the largest value") {
  const Tensor x = Tensor::of<float>({1, 5, 5, 0, 2, 3, 3, 3}, {1, 2, 4, 1});
  const Tensor g = Tensor::of<float>({10, 11, 12, 13, 14, 15, 16, 17}, {1, 2, 4, 1});
  const Attrs attrs = attrs_of_pool({{}, 2, 2, "VALID"}, false);
  const Tensor y = must(apply("MaxPool", {x}, attrs));
  CHECK(must(apply("MaxPoolGradGrad", {x, y, g}, attrs)).identical(Tensor::of<float>({11, 12}, {1, 1, 2, 1})));
  CHECK_FALSE(apply("MaxPoolGradGrad", {x, y, y}, attrs).ok());
  CHECK_FALSE(apply_unshaped("MaxPoolGradGrad", {x, y, y}, attrs).ok());
  Attrs padded = attrs;
  padded.set("padding", std::string("EXPLICIT"));
  padded.set("explicit_paddings", std::vector<int64_t>{0, 0, 1, 1, 0, 0, 0, 0});
  Graph graph(op_library()->ops);
  const Scope scope(graph);
  const Node* pool = add_node(scope, "MaxPool", {x}, padded);
  REQUIRE(scope.ok());
  const auto dx = gradients(scope, {pool->out(0)}, {pool->inputs()[0]},
                            {scope.constant(*Tensor::zeros(DType::kFloat32, {1, 2, 2, 1}))});
  REQUIRE(dx.ok());
  const auto second = gradients(scope, {(*dx)[0]}, {(*dx)[0].node->inputs()[2]});
  REQUIRE_FALSE(second.ok());
  CHECK_THAT(second.error().str(), Catch::Contains("no EXPLICIT padding"));
}

TEST_CASE("MaxPool passes over NaN, and its gradient finds -infinity") {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity(), least = -inf;
  const Tensor row = Tensor::of<float>({nan, 1, 2, nan, nan, nan, -inf, -inf, -inf, nan, nan, inf}, {1, 1, 12, 1});
  const auto pooled = [](const Tensor& x, int64_t height, int64_t width) {
    const std::vector<int64_t> window{1, height, width, 1};
    return must(apply("MaxPool", {x}, {{"ksize", window}, {"strides", window}, {"padding", std::string("VALID")}}));
  };
  CHECK(pooled(row, 1, 2).identical(Tensor::of<float>({1, 2, least, least, least, inf}, {1, 1, 6, 1})));
  CHECK(pooled(*row.reshape({1, 12, 1, 1}), 2, 1)
            .identical(Tensor::of<float>({1, 2, least, least, least, inf}, {1, 6, 1, 1})));
  CHECK(pooled(row, 1, 1).identical(
      Tensor::of<float>({least, 1, 2, least, least, least, least, least, least, least, least, inf}, {1, 1, 12, 1})));
  CHECK(pooled(*row.reshape({1, 2, 2, 3}), 2, 2).identical(Tensor::of<float>({least, 1, inf}, {1, 1, 1, 3})));
  const std::vector<int64_t> pair{1, 1, 2, 1};
  const Tensor low = Tensor::of<float>({-inf, -inf, nan, -inf, 1, nan}, {1, 1, 6, 1});
  const Tensor dx = must(apply("MaxPoolGrad", {low, pooled(low, 1, 2), Tensor::of<float>({3, 4, 5}, {1, 1, 3, 1})},
                               {{"ksize", pair}, {"strides", pair}, {"padding", std::string("VALID")}}));
  CHECK(dx.identical(Tensor::of<float>({3, 0, 0, 4, 5, 0}, {1, 1, 6, 1})));
}

TEST_CASE("Pools that do not fit are errors") {
  const Tensor x = random_tensor<float>({1, 4, 4, 2}, 1);
  Attrs attrs = attrs_of_pool({{}, 6, 1, "VALID"}, false);
  for (const char* op : {"MaxPool", "AvgPool"}) {
    CHECK_THAT(apply(op, {x}, attrs).error().str(), Catch::Contains("larger than the height of 4"));
    CHECK_THAT(apply_unshaped(op, {x}, attrs).error().str(), Catch::Contains("larger than the height of 4"));
    CHECK_FALSE(apply_unshaped(op, {*x.reshape({4, 8})}, attrs).ok());
  }
  attrs = attrs_of_pool({{}, 2, 2, "VALID"}, false);
  CHECK_FALSE(apply("MaxPoolGrad", {x, x, x}, attrs).ok());
  CHECK_FALSE(apply_unshaped("MaxPoolGrad", {x, x, x}, attrs).ok());
  CHECK_FALSE(apply_unshaped("AvgPoolGrad", {Tensor::of<int32_t>({1, 4, 4}), x}, attrs).ok());
  attrs.set("padding", std::string("EXPLICIT"));
  attrs.set("explicit_paddings", std::vector<int64_t>{0, 0, 2, 0, 0, 0, 0, 0});
  CHECK_FALSE(apply("MaxPool", {x}, attrs).ok());
}

}  // namespace
}  // namespace troupe::testing
