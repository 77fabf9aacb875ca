// SPDX-License-Identifier: Apache-2.0
// Loops over elements that have no branches and take short rows together, against plain ones.
#include <bit>
#include <cmath>

#include "ops/parts/fast_math.h"
#include "tests/ops/check_op.h"

namespace troupe::testing {

TEST_CASE("erfc and log1p of floats have small relative errors") {
  for (uint32_t bits = 0; bits < 0xffff0000u; bits += 99'991) {
    const auto x = std::bit_cast<float>(bits);
    const double e = std::erfc(static_cast<double>(x)), l = std::log1p(static_cast<double>(x));
    const float erfc = fast_math::erfc(x), log1p = fast_math::log1p(x);
    INFO(x);
    REQUIRE(std::isnan(erfc) == std::isnan(e));
    REQUIRE(std::isnan(log1p) == std::isnan(l));
    if (!std::isnan(e)) REQUIRE(std::abs(erfc - e) <= 1e-6 * e + 1e-44);
    if (std::isfinite(l)) REQUIRE(std::abs(log1p - l) <= 3e-7 * std::abs(l) + 1e-44);
  }
  CHECK(fast_math::log1p(-1.0f) == -HUGE_VALF);
  CHECK(fast_math::log1p(HUGE_VALF) == HUGE_VALF);
  CHECK(std::signbit(fast_math::log1p(-0.0f)));
  CHECK(fast_math::erfc(HUGE_VALF) == 0.0f);
  CHECK(fast_math::erfc(-HUGE_VALF) == 2.0f);
}

TEST_CASE("Select takes each element as its condition says, whatever the sizes") {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64}) {
    const int64_t n = 77;
    const Tensor a = *apply("Cast", {random_tensor<float>({n}, 1)}, {{"DstT", dtype}});
    const Tensor b = *apply("Cast", {random_tensor<float>({n}, 2)}, {{"DstT", dtype}});
    Tensor chosen = *Tensor::make(DType::kBool, {n});
    for (int64_t i = 0; i < n; ++i) chosen.mutable_data<bool>()[i] = i % 3 == 0;
    const auto got = doubles(*apply("SelectV2", {chosen, a, b})), x = doubles(a), y = doubles(b);
    for (int64_t i = 0; i < n; ++i) REQUIRE(got[i] == (i % 3 == 0 ? x[i] : y[i]));
  }
}

TEST_CASE("short rows broadcast and are reduced as long ones") {
  for (int64_t n : {1, 2, 3, 7, 31, 63, 64}) {
    const Tensor x = random_tensor<float>({301, n}, 3), row = random_tensor<float>({n}, 4);
    const auto left = doubles(*apply("Sub", {row, x}, {}, 0, 2)), right = doubles(*apply("Sub", {x, row}));
    const auto sum = doubles(*apply("Sum", {x, Tensor::of<int32_t>({1})}, {}, 0, 2)),
               most = doubles(*apply("Max", {x, Tensor::of<int32_t>({1})}));
    const auto a = doubles(x), b = doubles(row);
    for (int64_t i = 0; i < 301; ++i) {
      double want = 0, largest = a[i * n];
      for (int64_t j = 0; j < n; ++j) {
        REQUIRE(right[i * n + j] == static_cast<float>(a[i * n + j]) - static_cast<float>(b[j]));
        REQUIRE(left[i * n + j] == -right[i * n + j]);
        want += a[i * n + j];
        largest = std::max(largest, a[i * n + j]);
      }
      REQUIRE(std::abs(sum[i] - want) < 1e-5);
      REQUIRE(most[i] == largest);
    }
  }
}

}  // namespace troupe::testing
