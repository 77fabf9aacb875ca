// SPDX-License-Identifier: Apache-2.0
// Classes and ranks on GPUs are those of CPUs: OneHot, TopK, InTopK.
#include "tests/gpu/parity_cases.h"

namespace troupe::testing {
namespace {

TEST_CASE("One-hot rows on GPUs agree with those of CPUs") {
  Parity parity;
  const auto check = [&](const Tensor& indices, int32_t depth, int64_t axis, DType dtype) {
    parity.check({"OneHot",
                  {indices, Tensor::scalar(depth), random_values(dtype, Shape{}, 1), random_values(dtype, Shape{}, 2)},
                  {{"axis", axis}}});
  };
  for (DType index : {DType::kInt32, DType::kInt64, DType::kInt8, DType::kUInt8})
    for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBool, DType::kInt64})
      for (const Shape& shape : {Shape{}, Shape{7}, Shape{3, 40}, Shape{0, 2}})
        for (int64_t axis : {-1, 0, 1})
          for (int32_t depth : {0, 1, 12}) check(random_values(index, shape, 3), depth, axis, dtype);
  check(random_values(DType::kInt32, Shape{3}, 3), -1, 0, DType::kFloat32);  // errors
  check(random_values(DType::kInt32, Shape{3}, 3), 2, 2, DType::kFloat32);
}

TEST_CASE("The largest of rows on GPUs are those of CPUs, whatever is infinite or NaN") {
  Parity parity;
  for (DType dtype : gpu_types(parity, "TopK"))
    for (const auto& [shape, k] : std::vector<std::pair<Shape, int32_t>>{{Shape{1}, 1},
                                                                         {Shape{5}, 0},
                                                                         {Shape{5}, 5},
                                                                         {Shape{3, 40}, 3},
                                                                         {Shape{2, 3, 33}, 33},
                                                                         {Shape{2, 1500}, 7},
                                                                         {Shape{0, 3}, 2},
                                                                         {Shape{3, 0}, 0},
                                                                         {Shape{3, 4}, 5},  // errors
                                                                         {Shape{}, 1}})
      for (uint64_t seed : {4, 5}) {
        const Tensor x = random_values(dtype, shape, seed, true);
        parity.check({"TopK", {x}, {{"k", int64_t{k}}}});
        for (DType index : IndexTypes::dtypes())
          parity.check({"TopKV2", {x, Tensor::scalar(k)}, {{"index_type", index}}});
      }
}

TEST_CASE("Whether targets are among the largest on GPUs agrees with CPUs") {
  Parity parity;
  const auto check = [&](const Tensor& predictions, const Tensor& targets, int64_t k) {
    parity.check({"InTopK", {predictions, targets}, {{"k", k}}});
    const Tensor rank = targets.dtype() == DType::kInt32 ? Tensor::scalar(static_cast<int32_t>(k)) : Tensor::scalar(k);
    parity.check({"InTopKV2", {predictions, targets, rank}});
  };
  for (DType dtype : IndexTypes::dtypes())
    for (int64_t k : {0, 1, 3, 100, -1})
      for (const Shape& shape : {Shape{20, 10}, Shape{1, 1}, Shape{40, 1100}, Shape{0, 3}, Shape{3, 0}}) {
        const Tensor targets = random_values(dtype, Shape{shape[0]}, 6);  // some out of range
        check(random_values(DType::kFloat32, shape, 7), targets, k);
        check(random_values(DType::kFloat32, shape, 8, true), targets, k);
      }
  check(random_values(DType::kFloat32, Shape{3, 2}, 8), Tensor::of<int64_t>({0, 1}), 1);  // an error
  const Tensor ties = Tensor::of<float>({1, 2, 2, 2, INFINITY, 0, NAN, 3, 1}, Shape{3, 3});
  for (int64_t k : {1, 2, 3, 1 << 30}) check(ties, Tensor::of<int64_t>({1, 2, 1}), k);
}

}  // namespace
}  // namespace troupe::testing
