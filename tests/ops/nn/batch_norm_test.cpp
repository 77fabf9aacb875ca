// SPDX-License-Identifier: Apache-2.0
// Batch normalisation against its definition, of images and volumes in both layouts, training and inference, with
// gradients and bad input.
#include <cmath>

#include "tests/ops/check_op.h"

namespace troupe::testing {
namespace {

Attrs attrs_of_norm(bool first, bool training, float factor = 1.0f, bool volumes = false) {
  return Attrs{{"data_format", std::string(volumes ? first ? "NCDHW" : "NDHWC"
                                           : first ? "NCHW"
                                                   : "NHWC")},
               {"is_training", training},
               {"exponential_avg_factor", factor},
               {"epsilon", 0.01f}};
}

Tensor positive(int64_t n) {
  Tensor t = random_tensor<float>({n}, 4);
  for (int64_t i = 0; i < n; ++i) t.mutable_data<float>()[i] += 2.0f;
  return t;
}

TEST_CASE("Batch normalisation agrees with its definition") {
  for (bool first : {false, true})
    for (bool training : {false, true})
      for (int threads : {1, 2})
        for (const Shape& s : {Shape{4, 5, 6, 3}, Shape{8, 32, 32, 20}, Shape{2, 33, 5, 7}}) {
          const int64_t c = first ? s[1] : s[3], inner = first ? s[2] * s[3] : 1;
          const Tensor x = random_tensor<float>(s, 1), scale = random_tensor<float>({c}, 2),
                       offset = random_tensor<float>({c}, 3);
          const Tensor mean = random_tensor<float>({c}, 5), variance = positive(c);
          const std::vector<double> v = doubles(x);
          const auto channel = [&](size_t i) { return i / inner % c; };
          std::vector<double> m = doubles(mean), var = doubles(variance), out(v.size());
          const double n = static_cast<double>(x.elements() / c);
          if (training) {
            m.assign(c, 0.0);
            var.assign(c, 0.0);
            for (size_t i = 0; i < v.size(); ++i) m[channel(i)] += v[i] / n;
            for (size_t i = 0; i < v.size(); ++i) var[channel(i)] += std::pow(v[i] - m[channel(i)], 2) / n;
          }
          for (size_t i = 0; i < v.size(); ++i) {
            const int64_t k = channel(i);
            out[i] = (v[i] - m[k]) / std::sqrt(var[k] + 0.01) * scale.data<float>()[k] + offset.data<float>()[k];
          }
          const std::vector<Tensor> inputs = {x, scale, offset, mean, variance};
          const Attrs attrs = attrs_of_norm(first, training, training ? 0.25f : 1.0f);
          const auto result = [&](int port) {
            auto r = apply("FusedBatchNormV3", inputs, attrs, port, threads);
            INFO((r.ok() ? "" : r.error().str()));
            REQUIRE(r.ok());
            return doubles(*r);
          };
          check_close(result(0), out, 1e-4);
          check_close(result(3), m, 1e-5);
          check_close(result(4), var, 1e-4);
          for (int64_t k = 0; k < c && training; ++k) {
            m[k] = 0.75 * mean.data<float>()[k] + 0.25 * m[k];
            var[k] = 0.75 * variance.data<float>()[k] + 0.25 * var[k] * n / (n - 1);
          }
          check_close(result(1), m, 1e-5);
          check_close(result(2), var, 1e-4);
        }
}

// Expected: TensorFlow 2.21 without oneDNN.
TEST_CASE("The gradient by the scale scales each difference in training, before a sum overflows") {
  const float inf = INFINITY;
  struct Case {
    std::vector<float> g, x;  // of each of the two channels, which differ in their variance: infinite and 1e30
    std::vector<float> training, inference;  // of the latter none where it depends on products being rounded
  };
  const Case cases[] = {
      {{1e20f, 1}, {1e20f, 0}, {0, 1e25f}, {NAN, inf}}, {{1e20f, -1e20f}, {1e20f, 1e20f}, {0, 0}, {}},
      {{1, 2}, {1e20f, 0}, {0, 1e5f}, {0, 1e5f}},       {{inf, 1}, {1, 0}, {NAN, inf}, {NAN, inf}},
      {{1, 1}, {inf, 0}, {NAN, inf}, {NAN, inf}},
  };
  for (const Case& k : cases)
    for (const bool first : {false, true})
      for (const bool training : {true, false}) {
        const std::vector<float>& expected = training ? k.training : k.inference;
        const auto images = [&](const std::vector<float>& v) {
          return first ? Tensor::of<float>({v[0], v[1], v[0], v[1]}, {1, 2, 2, 1})
                       : Tensor::of<float>({v[0], v[0], v[1], v[1]}, {1, 2, 1, 2});
        };
        const auto got = apply("FusedBatchNormGradV3",
                               {images(k.g), images(k.x), Tensor::of<float>({1, 1}), Tensor::of<float>({0, 0}),
                                Tensor::of<float>({inf, 1e30f}), Tensor::of<float>({})},
                               {{"data_format", std::string(first ? "NCHW" : "NHWC")}, {"is_training", training}}, 1);
        REQUIRE(got.ok());
        for (size_t i = 0; i < expected.size(); ++i) {
          const float value = got->data<float>()[i];
          INFO("g " << k.g[0] << " x " << k.x[0] << " channel " << i << " training " << training << ": " << value);
          if (std::isnan(expected[i])) CHECK(std::isnan(value));
          else CHECK(value == Approx(expected[i]));
        }
      }
}

// Expected: TensorFlow 2.21.
TEST_CASE("Inference of batch normalisation reads infinities as its formula says") {
  const float inf = INFINITY, nan = NAN;
  const auto check = [](const Tensor& got, const std::vector<float>& expected) {
    for (size_t i = 0; i < expected.size(); ++i) {
      if (std::isnan(expected[i])) CHECK(std::isnan(got.data<float>()[i]));
      else CHECK(got.data<float>()[i] == expected[i]);
    }
  };
  const Tensor one = Tensor::of<float>({1}), two = Tensor::of<float>({2}), none = Tensor::of<float>({});
  const Tensor infinite = Tensor::of<float>({inf});
  for (const bool first : {false, true}) {
    Attrs attrs = attrs_of_norm(first, false);
    attrs.set("epsilon", 0.0f);
    const Tensor x = Tensor::of<float>({inf, -inf, 3, 1}, first ? Shape{1, 1, 2, 2} : Shape{1, 2, 2, 1});
    const auto norm = [&](const Tensor& mean, const Tensor& variance) {
      return must(apply("FusedBatchNormV3", {x, two, one, mean, variance}, attrs));
    };
    check(norm(one, Tensor::of<float>({4})), {inf, -inf, 3, 1});
    check(norm(one, infinite), {nan, nan, 1, 1});
    check(norm(infinite, Tensor::of<float>({4})), {nan, -inf, -inf, -inf});
    attrs = Attrs{{"data_format", std::string(first ? "NCHW" : "NHWC")}, {"is_training", false}, {"epsilon", 0.0f}};
    const Tensor g = Tensor::of<float>({1, -2, 0.5f, 2}, x.shape());
    const auto by_x = [&](const Tensor& mean, const Tensor& variance, const Tensor& dy) {
      return must(apply("FusedBatchNormGradV3", {dy, x, two, mean, variance, none}, attrs));
    };
    check(by_x(one, Tensor::of<float>({4}), g), {1, -2, 0.5f, 2});
    check(by_x(one, infinite, g), {0, 0, 0, 0});
    check(by_x(infinite, infinite, g), {0, 0, 0, 0});
    check(by_x(infinite, Tensor::of<float>({4}), x), {inf, -inf, 3, 1});
  }
}

struct Form {
  bool volumes, first, training;
};
constexpr Form kForms[] = {{false, false, false}, {false, false, true}, {false, true, false}, {false, true, true},
                           {true, false, false},  {true, false, true},  {true, true, false},  {true, true, true}};
Shape shape_of(bool volumes, bool first) {
  if (volumes) return first ? Shape{3, 2, 2, 2, 3} : Shape{3, 2, 2, 3, 2};
  return first ? Shape{3, 2, 3, 4} : Shape{3, 3, 4, 2};
}

TEST_CASE("Batch normalisation's gradients agree with finite differences") {
  for (const auto& [volumes, first, training] : kForms) {
    const Shape s = shape_of(volumes, first);
    const Tensor variance = Tensor::of<double>({1.5, 0.7});
    check_gradients("FusedBatchNormV3",
                    {random_tensor<double>(s, 1), random_tensor<double>({2}, 2), random_tensor<double>({2}, 3),
                     random_tensor<double>({2}, 4), variance},
                    attrs_of_norm(first, training, 1.0f, volumes), {0, 1, 2});
  }
}

TEST_CASE("Batch normalisation's second derivatives agree with finite differences") {
  for (const auto& [volumes, first, training] : kForms) {
    const Shape s = shape_of(volumes, first);
    Graph graph(op_library()->ops);
    const Scope scope(graph);
    std::vector<Output> in;
    std::vector<std::pair<Output, Tensor>> feeds;
    for (const Tensor& t :
         {random_tensor<double>(s, 1), random_tensor<double>({2}, 2), random_tensor<double>({2}, 3),
          random_tensor<double>({2}, 4), Tensor::of<double>({1.5, 0.7}), random_tensor<double>(s, 6)}) {
      in.push_back(scope.op("Placeholder", {}, {{"dtype", DType::kFloat64}, {"shape", PartialShape(t.shape())}}));
      feeds.emplace_back(in.back(), t);
    }
    const Output y =
        scope.op("FusedBatchNormV3", {in.begin(), in.begin() + 5}, attrs_of_norm(first, training, 1.0f, volumes));
    const auto dxs = gradients(scope, {y}, {in[0], in[1], in[2]}, {in[5]});
    REQUIRE(dxs.ok());
    std::vector<Output> weights = {scope.constant(random_tensor<double>(s, 7)),
                                   scope.constant(random_tensor<double>({2}, 8)),
                                   scope.constant(random_tensor<double>({2}, 9))};
    const std::vector<Output> xs = {in[0], in[1], in[5]};  // x, scale, dy
    const auto second = gradients(scope, *dxs, xs, weights);
    REQUIRE(second.ok());
    Evaluator evaluator;
    const auto loss = [&] {
      double sum = 0;
      for (int i = 0; i < 3; ++i) {
        const auto v = doubles(evaluator.value((*dxs)[i], feeds)), w = doubles(evaluator.value(weights[i]));
        for (size_t k = 0; k < v.size(); ++k) sum += v[k] * w[k];
      }
      return sum;
    };
    for (int j = 0; j < 3; ++j) {
      auto& feed = feeds[std::array{0, 1, 5}[j]].second;
      const Tensor x = feed;
      std::vector<double> want(x.elements());
      for (int64_t i = 0; i < x.elements(); ++i) {
        double at[2];
        for (int side = 0; side < 2; ++side) {
          feed = *x.clone();
          feed.mutable_data<double>()[i] += side ? 1e-5 : -1e-5;
          at[side] = loss();
        }
        want[i] = (at[1] - at[0]) / 2e-5;
      }
      feed = x;
      INFO("input " << j);
      check_close(doubles(evaluator.value((*second)[j], feeds)), want, 1e-6);
    }
  }
}

TEST_CASE("Batch normalisation of volumes is that of the images that have their numbers") {
  for (const bool first : {false, true})
    for (const bool training : {false, true}) {
      const Shape volume = first ? Shape{2, 3, 2, 5, 4} : Shape{2, 2, 5, 4, 3};
      const Shape image = first ? Shape{2, 3, 10, 4} : Shape{2, 10, 4, 3};
      const float factor = training ? 0.25f : 1.0f;
      const Attrs of_images = attrs_of_norm(first, training, factor),
                  of_volumes = attrs_of_norm(first, training, factor, true);
      std::vector<Tensor> inputs = {random_tensor<float>(volume, 1), random_tensor<float>({3}, 2),
                                    random_tensor<float>({3}, 3), random_tensor<float>({3}, 4), positive(3)};
      const auto same = [&](const char* op, const std::vector<Tensor>& in, const Attrs& volumes, const Attrs& images,
                            int ports) {
        std::vector<Tensor> flat = in;
        for (Tensor& t : flat)
          if (t.rank() == 5) t = *t.reshape(image);
        for (int port = 0; port < ports; ++port) {
          const auto got = apply(op, in, volumes, port), want = apply(op, flat, images, port);
          INFO(op << " " << port << (got.ok() ? "" : got.error().str()));
          REQUIRE((got.ok() && want.ok()));
          CHECK(got->shape() == (port == 0 ? volume : want->shape()));
          CHECK(got->reshape(want->shape())->identical(*want));
        }
      };
      same("FusedBatchNormV3", inputs, of_volumes, of_images, 6);
      inputs = {random_tensor<float>(volume, 5), inputs[0], inputs[1], inputs[3], inputs[4],
                random_tensor<float>({0}, 6)};
      Attrs grad_images{{"data_format", *of_images.get<std::string>("data_format")}, {"is_training", training}};
      Attrs grad_volumes = grad_images;
      grad_volumes.set("data_format", *of_volumes.get<std::string>("data_format"));
      same("FusedBatchNormGradV3", inputs, grad_volumes, grad_images, 5);
    }
  const Tensor x = random_tensor<float>({2, 3, 3, 4}, 1), good = random_tensor<float>({4}, 1);
  for (const char* format : {"NDHWC", "NCDHW"}) {
    const Attrs attrs = attrs_of_norm(format == std::string("NCDHW"), true, 1.0f, true);
    CHECK_FALSE(apply("FusedBatchNormV3", {x, good, good, good, good}, attrs).ok());
    CHECK_FALSE(apply_unshaped("FusedBatchNormV3", {x, good, good, good, good}, attrs).ok());
  }
}

TEST_CASE("Batch normalisation's vectors must fit the channels") {
  const Tensor x = random_tensor<float>({2, 3, 3, 4}, 1), good = random_tensor<float>({4}, 1),
               bad = random_tensor<float>({3}, 1);
  for (int i = 1; i < 5; ++i) {
    std::vector<Tensor> inputs = {x, good, good, good, good};
    inputs[i] = bad;
    CHECK_FALSE(apply("FusedBatchNormV3", inputs, attrs_of_norm(false, false)).ok());
    CHECK_FALSE(apply_unshaped("FusedBatchNormV3", inputs, attrs_of_norm(false, false)).ok());
  }
  CHECK_FALSE(apply_unshaped("FusedBatchNormV3", {good, good, good, good, good}, attrs_of_norm(false, true)).ok());
  CHECK_FALSE(apply_unshaped("FusedBatchNormGradV3", {x, x, bad, good, good, good}).ok());
}

}  // namespace
}  // namespace troupe::testing
