// SPDX-License-Identifier: Apache-2.0
// Powers by one exponent for all elements, which take the shorter ways of products and roots.
#include "tests/ops/check_op.h"

namespace troupe::testing {
namespace {

template <class T> void check_power(double exponent, double tolerance) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> x = {0.0, -0.0, 1, -1, 2.5, -2.5, 0.25, 12, inf, -inf, nan};
  const auto count = static_cast<int64_t>(x.size());
  Tensor base = *Tensor::make(dtype_of<T>, {count}), power = *Tensor::make(dtype_of<T>, {});
  for (int64_t i = 0; i < count; ++i) {
    base.mutable_data<T>()[i] = static_cast<T>(static_cast<float>(x[i]));
    x[i] = static_cast<double>(static_cast<float>(base.mutable_data<T>()[i]));
  }
  power.mutable_data<T>()[0] = static_cast<T>(static_cast<float>(exponent));
  // The same element by element, and the scalar on the left.
  const Tensor z = must(apply("Pow", {base, power}));
  const Tensor each = must(apply("Pow", {base, must(apply("Fill", {Tensor::of<int64_t>({count}), power}))}));
  for (int64_t i = 0; i < count; ++i) {
    const double want = std::pow(x[i], exponent), got = doubles(z)[i];
    INFO(to_string(dtype_of<T>) << ": " << x[i] << " ^ " << exponent << " = " << got << ", not " << want);
    if (std::isnan(want)) CHECK(std::isnan(got));
    else if (std::isinf(want) || want == 0) CHECK((got == want && std::signbit(got) == std::signbit(want)));
    else CHECK(std::abs(got - want) <= tolerance * std::abs(want));
    CHECK((std::isnan(doubles(each)[i]) || std::abs(doubles(each)[i] - got) <= tolerance * std::abs(got) ||
           doubles(each)[i] == got));
  }
}

TEST_CASE("Powers by one exponent are those of pow, at zeros and infinities too") {
  for (double exponent : {2.0, 3.0, 0.5, -0.5, 1.0, -1.0, 0.0, 4.0, -2.0, 1.5}) {
    check_power<float>(exponent, 3e-7);
    check_power<double>(exponent, 5e-16);
    check_power<float16>(exponent, 1e-3);
    check_power<bfloat16>(exponent, 8e-3);
  }
}

}  // namespace
}  // namespace troupe::testing
