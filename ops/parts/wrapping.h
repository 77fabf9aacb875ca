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
  else if constexpr (std::is_same_v<T, complex64>)  // by the formula alone: C++ would look for infinities
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  else return a * b;
}

/// a / b; of complex numbers NaN where b is 0, as TensorFlow's is. Scaled, so that nothing overflows on the way (Smith,
/// "Algorithm 116: Complex division", 1962).
inline complex64 quotient(complex64 a, complex64 b) {
  const float scale = std::max(std::abs(b.real()), std::abs(b.imag()));
  const float re = b.real() / scale, im = b.imag() / scale, square = re * re + im * im;
  return {(a.real() * re + a.imag() * im) / square / scale, (a.imag() * re - a.real() * im) / square / scale};
}

template <class T> [[gnu::always_inline]] TROUPE_HOST_DEVICE inline T quotient(T a, T b) { return a / b; }

/// The conjugate of complex x; x itself where it is real.
template <class T> TROUPE_HOST_DEVICE T conjugate(T x) {
  if constexpr (std::is_same_v<T, complex64>) return std::conj(x);
  else return x;
}

}  // namespace troupe
