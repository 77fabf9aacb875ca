// SPDX-License-Identifier: Apache-2.0
// BiasAdd and BiasAddGrad against loops, in both layouts, and bad input.
#include "tests/ops/check_op.h"

namespace troupe::testing {
namespace {

/// Channel of flat element i.
int64_t channel(const Shape& s, bool first, int64_t i) {
  if (!first || s.rank() < 3) return i % s.dim(-1);
  int64_t inner = 1;
  for (int d = 2; d < s.rank(); ++d) inner *= s[d];
  return i / inner % s[1];
}

Attrs layout(bool first) { return Attrs{{"data_format", std::string(first ? "NCHW" : "NHWC")}}; }

TEST_CASE("BiasAdd and its gradient agree with loops") {
  for (bool first : {false, true})
    for (const Shape& s : {Shape{4, 10}, Shape{3, 28, 28, 6}, Shape{2, 100, 5, 7}, Shape{513, 300}, Shape{2, 3, 4},
                           Shape{0, 5}, Shape{1, 1}, Shape{700, 3, 3, 65}})
      for (int threads : {1, 2}) {
        const int64_t channels = first && s.rank() > 2 ? s[1] : s.dim(-1);
        const Tensor x = random_tensor<float>(s, 1), b = random_tensor<float>({channels}, 2);
        const auto y = apply("BiasAdd", {x, b}, layout(first), 0, threads);
        const auto g = apply("BiasAddGrad", {x}, layout(first), 0, threads);
        REQUIRE(y.ok());
        REQUIRE(g.ok());
        std::vector<double> sum = doubles(x), column(channels, 0.0);
        for (int64_t i = 0; i < x.elements(); ++i) {
          column[channel(s, first, i)] += sum[i];
          sum[i] += b.data<float>()[channel(s, first, i)];
        }
        check_close(doubles(*y), sum, 1e-6);
        check_close(doubles(*g), column, 1e-4);
      }
}

TEST_CASE("BiasAdd's gradient agrees with finite differences") {
  check_gradients("BiasAdd", {random_tensor<double>({2, 3, 2, 4}, 1), random_tensor<double>({4}, 2)}, {}, {0, 1});
  check_gradients("BiasAdd", {random_tensor<double>({2, 3, 2, 4}, 1), random_tensor<double>({3}, 2)}, layout(true),
                  {0, 1});
}

TEST_CASE("A bias that does not fit is an error") {
  const Tensor x = random_tensor<float>({2, 5}, 1), b = random_tensor<float>({4}, 2), v = random_tensor<float>({4}, 3);
  for (const auto& r : {apply("BiasAdd", {x, b}), apply_unshaped("BiasAdd", {x, b})}) {
    REQUIRE_FALSE(r.ok());
    CHECK_THAT(r.error().str(), Catch::Contains("for 5 channels"));
  }
  CHECK_FALSE(apply("BiasAdd", {v, b}).ok());
  CHECK_FALSE(apply_unshaped("BiasAdd", {v, b}).ok());
  CHECK_FALSE(apply_unshaped("BiasAdd", {x, x}).ok());
  CHECK_FALSE(apply_unshaped("BiasAddGrad", {v}).ok());
}

}  // namespace
}  // namespace troupe::testing
