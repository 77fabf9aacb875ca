// SPDX-License-Identifier: Apache-2.0
// Conversion of an element by value, for the loops of CPUs and the kernels of GPUs. GPUs have none of complex numbers.
#pragma once
#include <bit>
#include <cmath>
#include <limits>

#include "ops/parts/arithmetic.h"

namespace troupe::cast_functors {

/// A floating number as an integer: truncated; where it does not fit, the nearest there is, and 0 for NaN.
template <class To, class From> TROUPE_HOST_DEVICE To truncated_to(From x) {
  // Both limits as powers of two, which floating types hold exactly.
  const From above = std::ldexp(From(1), std::numeric_limits<To>::digits);
  const From below = std::numeric_limits<To>::is_signed ? -above : From(0);
  if (x >= above) return std::numeric_limits<To>::max();
  if (x <= below) return std::numeric_limits<To>::min();
  return x == x ? static_cast<To>(x) : To(0);
}

template <class To, class From> TROUPE_HOST_DEVICE To convert(From value) {
  const auto x = widen(value);
  using X = Arithmetic<From>;
  if constexpr (std::is_same_v<To, bool>) return x != X(0);
  else if constexpr (is_complex_type<X>) {
    if constexpr (is_complex_type<To>) return To(x);
    else return convert<To, Real<X>>(x.real());
  } else if constexpr (is_complex_type<To>) return To(static_cast<Real<To>>(x), 0);
  else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<X>) return truncated_to<To>(x);
  else return narrow<To>(static_cast<Arithmetic<To>>(x));
}

/// How many bits there are behind the point of a floating type.
template <class T>
inline constexpr int kMantissa = std::is_same_v<T, double>    ? 52
                                 : std::is_same_v<T, float>   ? 23
                                 : std::is_same_v<T, float16> ? 10
                                                              : 7;

/// Whether TensorFlow can truncate between these types.
template <class To, class From>
inline constexpr bool kTruncates = sizeof(To) < sizeof(From) &&
                                   (std::is_same_v<From, float> || !std::is_same_v<To, bfloat16>);

/// x without the bits that To has none for, so that nothing is rounded.
template <class To, class From> TROUPE_HOST_DEVICE From without_excess_bits(From x) {
  using Bits = std::conditional_t<sizeof(From) == 8, uint64_t, uint32_t>;
  constexpr Bits mask = ~((Bits(1) << (kMantissa<From> - kMantissa<To>)) - 1);
  return std::bit_cast<From>(std::bit_cast<Bits>(x) & mask);
}

}  // namespace troupe::cast_functors
