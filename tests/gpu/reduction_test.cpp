// SPDX-License-Identifier: Apache-2.0
// Reductions give on GPUs what they give on CPUs; sums of floats are added in another order.
#include "tests/gpu/parity_cases.h"

namespace troupe::testing {
namespace {

struct Axes {
  Shape shape;
  std::vector<int32_t> axes;
};
/// Rows and columns, short and long, in one piece and in segments; several runs of dimensions; nothing.
const std::vector<Axes>& reductions() {
  static const std::vector<Axes> all = {
      {Shape{}, {}},
      {Shape{5}, {}},
      {Shape{5}, {0}},
      {Shape{0}, {0}},
      {Shape{3, 0}, {1}},
      {Shape{0, 3}, {1}},
      {Shape{7, 33}, {1}},
      {Shape{7, 33}, {0}},
      {Shape{7, 33}, {-1, 0}},
      {Shape{3, 2500}, {1}},
      {Shape{2500, 3}, {0}},
      {Shape{300, 70}, {0}},
      {Shape{40000}, {0}},
      {Shape{1, 1, 1}, {1}},
      {Shape{4, 5, 6}, {1}},
      {Shape{4, 5, 6}, {0, 2}},
      {Shape{3, 4, 5, 6}, {1, 3}},
      {Shape{3, 4, 5, 6}, {0, 2}},
      {Shape{2, 3, 1, 5, 4}, {0, 3}},
      {Shape{3, 4}, {2}},  // errors
      {Shape{3, 4}, {1, -1}},
  };
  return all;
}

double sum_tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return 2e-5;
    case DType::kFloat64: return 1e-13;
    case DType::kFloat16: return 2e-3;
    case DType::kBFloat16: return 1e-2;
    default: return 0;
  }
}

TEST_CASE("Sums, means and norms on GPUs agree with those of CPUs") {
  Parity parity;
  for (const char* op : {"Sum", "Mean", "EuclideanNorm"})
    for (DType dtype : gpu_types(parity, op))
      for (const auto& [shape, axes] : reductions())
        for (bool keep : {false, true})
          parity.check({op,
                        {random_values(dtype, shape, 1), Tensor::of<int32_t>(std::span(axes))},
                        {{"keep_dims", keep}},
                        // Sums of many lose what cancels.
                        sum_tolerance(dtype) * std::max<double>(1, std::sqrt(shape.elements()) / 8)});
}

TEST_CASE("Extremes on GPUs are those of CPUs, whatever is infinite or NaN") {
  Parity parity;
  for (const char* op : {"Max", "Min"})
    for (DType dtype : gpu_types(parity, op))
      for (const auto& [shape, axes] : reductions())
        for (bool extremes : {false, true})
          parity.check({op, {random_values(dtype, shape, 2, extremes), Tensor::of<int32_t>(std::span(axes))}});
}

TEST_CASE("Products on GPUs agree with those of CPUs") {
  Parity parity;
  for (DType dtype : gpu_types(parity, "Prod"))
    for (const auto& [shape, axes] : reductions()) {
      if (shape.elements() > 1000 && is_floating(dtype)) continue;  // 0 or infinite
      parity.check({"Prod",
                    {random_values(dtype, shape, 3), Tensor::of<int32_t>(std::span(axes))},
                    {},
                    sum_tolerance(dtype) * 4});
    }
}

TEST_CASE("Whether all or any hold on GPUs agrees with CPUs") {
  Parity parity;
  for (const char* op : {"All", "Any"})
    for (const auto& [shape, axes] : reductions())
      for (int kind = 0; kind < 3; ++kind) {
        Tensor x = random_values(DType::kBool, shape, 4);
        if (kind < 2) std::fill_n(x.mutable_data<bool>(), x.elements(), kind == 1);
        if (kind == 1 && x.elements() > 2) x.mutable_data<bool>()[x.elements() / 2] = false;
        parity.check({op, {x, Tensor::of<int32_t>(std::span(axes))}});
      }
}

TEST_CASE("L2Loss on GPUs agrees with that of CPUs") {
  Parity parity;
  for (DType dtype : gpu_types(parity, "L2Loss"))
    for (const Shape& shape : parity_shapes())
      parity.check({"L2Loss", {random_values(dtype, shape, 5)}, {}, sum_tolerance(dtype)});
}

TEST_CASE("The places of extremes on GPUs are those of CPUs") {
  Parity parity;
  for (const char* op : {"ArgMax", "ArgMin"})
    for (DType dtype : gpu_types(parity, op))
      for (DType out : {DType::kInt32, DType::kInt64})
        for (const auto& [shape, axis] : std::vector<std::pair<Shape, int32_t>>{{Shape{1}, 0},
                                                                                {Shape{7}, 0},
                                                                                {Shape{3000}, 0},
                                                                                {Shape{20000}, 0},
                                                                                {Shape{5, 40}, 1},
                                                                                {Shape{5, 40}, -2},
                                                                                {Shape{1200, 3}, 0},
                                                                                {Shape{3, 4, 5}, 1},
                                                                                {Shape{0, 3}, 1},
                                                                                {Shape{3, 0}, 1},  // errors
                                                                                {Shape{3}, 1}})
          for (uint64_t seed : {6, 7, 8})
            parity.check(
                {op, {random_values(dtype, shape, seed, true), Tensor::scalar<int32_t>(axis)}, {{"output_type", out}}});
  // A NaN is neither the largest nor the smallest.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* op : {"ArgMax", "ArgMin"})
    for (const Tensor& x : {Tensor::of<float>({nan, 3, 1}), Tensor::of<float>({3, nan, 5, nan}),
                            Tensor::of<float>({nan, nan}), Tensor::of<float>({-INFINITY, nan, -INFINITY}),
                            Tensor::of<float>({nan, -INFINITY, -INFINITY}), Tensor::of<float>({nan, INFINITY, nan})})
      parity.check({op, {x, Tensor::scalar<int32_t>(0)}});
}

}  // namespace
}  // namespace troupe::testing
