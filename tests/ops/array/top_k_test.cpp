// SPDX-License-Identifier: Apache-2.0
// The order of TopKV2, with and without `sorted`. GPUs have one order alone.
#include "tests/ops/check_op.h"
#include "tests/ops/op_case.h"

namespace troupe::testing {

TEST_CASE("TopKV2 without sorted has TensorFlow's order") {
  const Tensor x = F({-1, -6, -3, 5, -3, 1,  3, -3, -1, -4, -2, 1,  0,  2,  2,  4, -5,
                      0,  1,  1,  2, -5, -1, 3, 2,  3,  -2, -3, -6, -3, -1, -6, -4},
                     {3, 11});
  const std::pair<int, Tensor> orders[] = {
      {1, I({3, 4, 1}, {3, 1})},
      {2, I({6, 3, 2, 4, 3, 1}, {3, 2})},
      {4, I({0, 5, 3, 6, 9, 3, 2, 4, 0, 3, 2, 1}, {3, 4})},
      {7, I({2, 0, 10, 6, 3, 5, 8, 8, 7, 0, 3, 4, 2, 9, 5, 4, 8, 3, 1, 2, 0}, {3, 7})},
      {10, I({9, 7, 2, 10, 4, 5, 6, 3, 8, 0, 5, 1, 6, 8, 0, 2, 4, 7, 3, 9, 6, 10, 5, 7, 4, 1, 2, 3, 8, 0}, {3, 10})},
      {11, I({3, 6, 5, 0, 8, 10, 2, 4, 7, 9, 1, 4, 2, 3, 9, 0, 7, 8, 1, 6, 5, 10, 1, 3, 2, 0, 8, 4, 5, 7, 10, 6, 9},
             {3, 11})},
  };
  for (const auto& [k, order] : orders) {
    INFO(k);
    const auto indices = apply("TopKV2", {x, I(k)}, {{"sorted", false}}, 1);
    const auto values = apply("TopKV2", {x, I(k)}, {{"sorted", false}}, 0);
    REQUIRE((indices.ok() && values.ok()));
    CHECK(indices->identical(order));
    for (int64_t i = 0; i < order.elements(); ++i)
      CHECK(values->data<float>()[i] == x.data<float>()[i / k * 11 + order.data<int32_t>()[i]]);
  }
  Tensor many = *Tensor::make(DType::kFloat32, {100});  // most of the largest come late
  for (int64_t i = 0; i < 100; ++i) many.mutable_data<float>()[i] = static_cast<float>(i * 17 % 101);
  const auto late = apply("TopKV2", {many, I(9)}, {{"sorted", false}}, 1);
  REQUIRE(late.ok());
  CHECK(late->identical(I({47, 59, 53, 71, 77, 89, 65, 83, 95})));
  const auto sorted = apply("TopKV2", {x, I(4)}, {}, 1);
  REQUIRE(sorted.ok());
  CHECK(sorted->identical(I({3, 6, 5, 0, 4, 2, 3, 9, 1, 3, 2, 0}, {3, 4})));
}

TEST_CASE("sorting of whole rows has ties by index, zeros equal and NaN last") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::of<float>({0.0f, -1.0f, nan, 2.0f, -0.0f, HUGE_VALF, 2.0f, -HUGE_VALF, -nan}, {9});
  CHECK(doubles(*apply("TopKV2", {x, Tensor::scalar<int32_t>(9)}, {}, 1)) ==
        std::vector<double>{5, 3, 6, 0, 4, 1, 7, 2, 8});
  CHECK(doubles(*apply("TopKV2", {x, Tensor::scalar<int32_t>(4)}, {}, 1)) == std::vector<double>{5, 3, 6, 0});
}

}  // namespace troupe::testing
