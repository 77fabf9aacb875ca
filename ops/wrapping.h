// SPDX-License-Identifier: Apache-2.0
// Sums and products of elements in which integers wrap around, as TensorFlow's do, without undefined behaviour.
#pragma once
#include <cstdint>
#include <type_traits>

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
  else return a * b;
}

}  // namespace troupe
