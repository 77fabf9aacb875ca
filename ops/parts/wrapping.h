// SPDX-License-Identifier: Apache-2.0
// Sums and products of elements in which integers wrap around, as TensorFlow's do, without undefined behaviour; complex
// products, quotients and conjugates. For the host and, but for complex numbers, for GPUs.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "ops/parts/arithmetic.h"

namespace troupe {

/// The unsigned type that arithmetic on integers T is done in; smaller ones would be promoted to int.
template <class T> using Wrapping = std::conditional_t<(sizeof(T) > 4), uint64_t, uint32_t>;

template <class T> [[gnu::always_inline]] TROUPE_HOST_DEVICE inline T wrapping_add(T a, T b) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(Wrapping<T>(a) + Wrapping<T>(b));
  else return a + b;
}
template <class T> [[gnu::always_inline]] TROUPE_HOST_DEVICE inline T wrapping_subtract(T a, T b) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(Wrapping<T>(a) - Wrapping<T>(b));
  else return a - b;
}
template <class T> [[gnu::always_inline]] TROUPE_HOST_DEVICE inline T wrapping_multiply(T a, T b) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(Wrapping<T>(a) * Wrapping<T>(b));
  else if constexpr (is_complex_type<T>)  // by the formula alone: C++ would look for infinities
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  else return a * b;
}

/// a / b; of complex numbers NaN where b is 0, as TensorFlow's is. Scaled, so that nothing overflows on the way (Smith,
/// "Algorithm 116: Complex division", 1962).
template <class R> inline std::complex<R> quotient(std::complex<R> a, std::complex<R> b) {
  const R scale = std::max(std::abs(b.real()), std::abs(b.imag()));
  const R re = b.real() / scale, im = b.imag() / scale, square = re * re + im * im;
  return {(a.real() * re + a.imag() * im) / square / scale, (a.imag() * re - a.real() * im) / square / scale};
}

template <class T> [[gnu::always_inline]] TROUPE_HOST_DEVICE inline T quotient(T a, T b) { return a / b; }

/// The conjugate of complex x; x itself where it is real.
template <class T> TROUPE_HOST_DEVICE T conjugate(T x) {
  if constexpr (is_complex_type<T>) return std::conj(x);
  else return x;
}

}  // namespace troupe
