// SPDX-License-Identifier: Apache-2.0
// exp, expm1, tanh, erf and the logistic function of floats, written without branches or calls so that compilers
// vectorise loops over them. Relative error below 3e-7; NaN and infinity as in the standard library. GPUs take CUDA's
// own.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/host_device.h"

namespace troupe::fast_math {

/// x = n ln 2 + r with |r| <= ln 2 / 2.
struct Reduced {
  int32_t n;
  float r;
};

[[gnu::always_inline]] TROUPE_HOST_DEVICE inline Reduced reduce(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, left in the low bits
  const float shifted = x * 1.44269504f + kRound;
  const float n = shifted - kRound;
  // ln 2 in two parts, the first exact in products with n.
  return {std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound),
          (x - n * 0.693359375f) - n * -2.12194440e-4f};
}

[[gnu::always_inline]] TROUPE_HOST_DEVICE inline float power_of_two(int32_t n) {
  return std::bit_cast<float>((n + 127) << 23);
}

/// `limit` where `beyond`, else x. By bits: of `beyond ? limit : x` GCC makes a branch, since what follows from the
/// limit is a constant, and does not vectorise the loop around it.
[[gnu::always_inline]] TROUPE_HOST_DEVICE inline float bounded(float x, bool beyond, float limit) {
  const int32_t mask = -static_cast<int32_t>(beyond);
  return std::bit_cast<float>((std::bit_cast<int32_t>(x) & ~mask) | (std::bit_cast<int32_t>(limit) & mask));
}

/// exp(r) - 1 by the series up to r^7.
[[gnu::always_inline]] TROUPE_HOST_DEVICE inline float series(float r) {
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  return p * r * r + r;
}

[[gnu::always_inline]] TROUPE_HOST_DEVICE inline float exp(float x) {
#ifdef __CUDA_ARCH__
  return ::expf(x);
#else
  x = bounded(x, x > 89.0f, 89.0f);
  x = bounded(x, x < -104.0f, -104.0f);
  const Reduced d = reduce(x);
  const int32_t half = d.n >> 1;  // in two steps: 2^n itself may be no normal number
  return (1.0f + series(d.r)) * power_of_two(half) * power_of_two(d.n - half);
#endif
}

/// For |x| <= 88.
[[gnu::always_inline]] TROUPE_HOST_DEVICE inline float expm1(float x) {
#ifdef __CUDA_ARCH__
  return ::expm1f(x);
#else
  const Reduced d = reduce(x);
  const float scale = power_of_two(d.n);
  return scale * series(d.r) + (scale - 1.0f);
#endif
}

[[gnu::always_inline]] TROUPE_HOST_DEVICE inline float tanh(float x) {
#ifdef __CUDA_ARCH__
  return ::tanhf(x);
#else
  float a = std::fabs(x);
  a = bounded(a, a > 10.0f, 10.0f);
  const float e = expm1(2.0f * a);
  return std::copysign(e / (e + 2.0f), x);
#endif
}

/// 1 - exp(-q) with q = -log(1 - erf(x)), by a polynomial fitted to q / x where the error counts most.
[[gnu::always_inline]] TROUPE_HOST_DEVICE inline float erf(float x) {
#ifdef __CUDA_ARCH__
  return ::erff(x);
#else
  float a = std::fabs(x);
  a = bounded(a, a > 4.0f, 4.0f);
  float p = 4.07087828e-05f;
  p = p * a - 0.000381006597f;
  p = p * a + 0.00125176262f;
  p = p * a + 0.000205694916f;
  p = p * a - 0.0193217024f;
  p = p * a + 0.102814406f;
  p = p * a + 0.636616468f;
  p = p * a + 1.12837923f;
  return std::copysign(-expm1(-p * a), x);
#endif
}

[[gnu::always_inline]] TROUPE_HOST_DEVICE inline float sigmoid(float x) { return 1.0f / (1.0f + fast_math::exp(-x)); }

}  // namespace troupe::fast_math
