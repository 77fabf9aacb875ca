// SPDX-License-Identifier: Apache-2.0
// Batch normalisation and its gradients on GPUs agree with those of CPUs; sums are added in another order.
#include "tests/gpu/parity_cases.h"

namespace troupe::testing {
namespace {

double statistics_tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return 2e-5;
    case DType::kFloat64: return 1e-12;
    case DType::kFloat16: return 2e-3;
    default: return 1.6e-2;
  }
}

/// Images [batch, height, width, channels].
const int64_t kNormImages[][4] = {{2, 3, 4, 5},   {1, 1, 1, 3}, {3, 1, 1, 1},   {2, 4, 4, 8}, {5, 7, 3, 33},
                                  {40, 16, 8, 2}, {0, 4, 4, 3}, {2, 0, 4, 3},   {2, 4, 4, 0}, {1, 70, 70, 3},
                                  {2, 1, 3, 130}, {2, 2, 2, 4}, {17, 33, 35, 1}};
Shape images_shape(const int64_t (&s)[4], bool first) {
  return first ? Shape{s[0], s[3], s[1], s[2]} : Shape{s[0], s[1], s[2], s[3]};
}
Tensor squares(const Tensor& x) {
  Tensor y = *x.clone();
  with_type(x.dtype(), FloatTypes{}, [&]<class T>() {
    for (int64_t i = 0; i < y.elements(); ++i) {
      T& v = y.mutable_data<T>()[i];
      v = narrow<T>(widen(v) * widen(v) + Arithmetic<T>(0.1f));
    }
  });
  return y;
}
/// Values around 30, whose deviation is small beside that.
Tensor far_from_zero(DType dtype, const Shape& shape, uint64_t seed) {
  Tensor x = random_values(dtype, shape, seed);
  with_type(dtype, FloatTypes{}, [&]<class T>() {
    for (int64_t i = 0; i < x.elements(); ++i) {
      T& v = x.mutable_data<T>()[i];
      v = narrow<T>(widen(v) + Arithmetic<T>(30));
    }
  });
  return x;
}
DType vectors_of(DType dtype) { return dtype == DType::kFloat64 ? dtype : DType::kFloat32; }

TEST_CASE("Batch normalisation on GPUs agrees with that of CPUs") {
  Parity parity;
  for (DType dtype : gpu_types(parity, "FusedBatchNormV3"))
    for (const auto& images : kNormImages)
      for (bool first : {false, true})
        for (float factor : {1.0f, 0.1f, -1.0f}) {  // the last: no training
          const Shape shape = images_shape(images, first), channels{images[3]};
          const Attrs attrs{{"data_format", std::string(first ? "NCHW" : "NHWC")},
                            {"is_training", factor > 0},
                            {"epsilon", 0.01f},
                            {"exponential_avg_factor", factor > 0 ? factor : 1.0f},
                            {"U", vectors_of(dtype)}};
          const auto vector = [&](uint64_t seed) { return random_values(vectors_of(dtype), channels, seed); };
          const Tensor none = random_values(vectors_of(dtype), Shape{0}, 1);
          const Tensor mean = factor == 1 ? none : vector(3), variance = factor == 1 ? none : squares(vector(4));
          const double tolerance = statistics_tolerance(dtype);
          parity.check({"FusedBatchNormV3",
                        {random_values(dtype, shape, 2), vector(5), vector(6), mean, variance},
                        attrs,
                        tolerance});
          if (dtype == DType::kFloat32 || dtype == DType::kFloat64)
            parity.check({"FusedBatchNormV3",
                          {far_from_zero(dtype, shape, 2), vector(5), vector(6), mean, variance},
                          attrs,
                          tolerance * 10});
          parity.check({"FusedBatchNormV3",  // an error
                        {random_values(dtype, shape, 2), vector(5), random_values(vectors_of(dtype), Shape{7}, 6), mean,
                         variance},
                        attrs});
        }
  parity.check({"FusedBatchNormV3", std::vector<Tensor>(5, random_values(DType::kFloat32, Shape{3}, 1))});
}

TEST_CASE("Gradients of batch normalisation on GPUs agree with those of CPUs") {
  Parity parity;
  for (DType dtype : gpu_types(parity, "FusedBatchNormGradV3"))
    for (const auto& images : kNormImages)
      for (bool first : {false, true})
        for (bool training : {false, true}) {
          const Shape shape = images_shape(images, first), channels{images[3]};
          const Attrs attrs{{"data_format", std::string(first ? "NCHW" : "NHWC")},
                            {"is_training", training},
                            {"epsilon", 0.01f},
                            {"U", vectors_of(dtype)}};
          const auto vector = [&](uint64_t seed) { return random_values(vectors_of(dtype), channels, seed); };
          const Tensor g = random_values(dtype, shape, 7), x = random_values(dtype, shape, 8);
          const Tensor none = random_values(vectors_of(dtype), Shape{0}, 1);
          parity.check({"FusedBatchNormGradV3",
                        {g, x, vector(9), vector(10), squares(vector(11)), none},
                        attrs,
                        statistics_tolerance(dtype) * 10});
          parity.check({"FusedBatchNormGradV3",  // an error
                        {random_values(dtype, Shape{3, 2, 1, 1}, 7), x, vector(9), vector(10), vector(11), none},
                        attrs});
        }
}

}  // namespace
}  // namespace troupe::testing
