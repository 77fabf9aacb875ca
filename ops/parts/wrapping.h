// SPDX-License-Identifier: Apache-2.0
// Sums and products of elements in which integers wrap around, as TensorFlow's do, without undefined behaviour; complex
// products, quotients and conjugates.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "ops/parts/type_dispatch.h"

namespace troupe {

/// The unsigned type that arithmetic on integers T is done in; smaller ones would be promoted to int.
template <class T> using Wrapping = std::conditional_t<(sizeof(T) > 4), uint64_t, uint32_t>;

template <class T> [[gnu::always_inline]] inline T wrapping_add(T a, T b) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(Wrapping<T>(a) + Wrapping<T>(b));
  else return a + b;
}
template <class T> [[gnu::always_inline]] inline T wrapping_subtract(T a, T b) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(Wrapping<T>(a) - Wrapping<T>(b));
  else return a - b;
}
template <class T> [[gnu::always_inline]] inline T wrapping_multiply(T a, T b) {
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

template <class T> [[gnu::always_inline]] inline T quotient(T a, T b) { return a / b; }

/// The conjugate of complex x; x itself where it is real.
template <class T> T conjugate(T x) {
  if constexpr (std::is_same_v<T, complex64>) return std::conj(x);
  else return x;
}

/// Calls f.template operator()<T>() with the floating or complex T of `dtype`, or with the unsigned integer of the
/// size of an integer `dtype`: sums, differences and products have the same bits whether signed or not.
template <class F> void with_wrapping(DType dtype, F&& f) {
  if (with_type(dtype, FloatOrComplexTypes{}, f)) return;
  switch (size_of(dtype)) {
    case 1: return f.template operator()<uint8_t>();
    case 2: return f.template operator()<uint16_t>();
    case 4: return f.template operator()<uint32_t>();
    default: return f.template operator()<uint64_t>();
  }
}

}  // namespace troupe
