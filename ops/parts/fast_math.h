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

/// t * exp(P(t) - x^2) with t = 1 / (1 + |x| / 2), exact for large x too: x^2 is h^2 + (x - h)(x + h), where h is x
/// with 12 bits, whose square is exact. The polynomial is of Press et al., "Numerical Recipes", erfcc.
[[gnu::always_inline]] TROUPE_HOST_DEVICE inline float erfc(float x) {
#ifdef __CUDA_ARCH__
  return ::erfcf(x);
#else
  float a = std::fabs(x);
  a = bounded(a, a > 10.5f, 10.5f);
  const float h = std::bit_cast<float>(std::bit_cast<int32_t>(a) & ~0xfff), t = 1.0f / (1.0f + 0.5f * a);
  float p = 0.17087277f;
  p = p * t - 0.82215223f;
  p = p * t + 1.48851587f;
  p = p * t - 1.13520398f;
  p = p * t + 0.27886807f;
  p = p * t - 0.18628806f;
  p = p * t + 0.09678418f;
  p = p * t + 0.37409196f;
  p = p * t + 1.00002368f;
  p = p * t - 1.26551223f;
  const float r = t * fast_math::exp(p - (a - h) * (a + h)) * fast_math::exp(-h * h);
  const int32_t negative = std::bit_cast<int32_t>(x) >> 31;  // 2 - r there, by bits: no branch
  return std::bit_cast<float>(std::bit_cast<int32_t>(r) ^ (negative & std::bit_cast<int32_t>(-0.0f))) +
         std::bit_cast<float>(negative & std::bit_cast<int32_t>(2.0f));
#endif
}

/// The logarithm of a normal positive number: 2^n m with m from sqrt(1/2) to sqrt(2), and a polynomial of m - 1
/// (Cephes).
[[gnu::always_inline]] TROUPE_HOST_DEVICE inline float log_of_normal(float x) {
  // Less the bits of sqrt(1/2); of numbers that are not positive what wraps around.
  const auto shifted = static_cast<int32_t>(std::bit_cast<uint32_t>(x) - 0x3f3504f3u);
  const auto n = static_cast<float>(shifted >> 23);
  const float f = std::bit_cast<float>((shifted & 0x7fffff) + 0x3f3504f3) - 1.0f, z = f * f;
  float p = 7.0376836292e-2f;
  p = p * f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  return n * 0.693359375f + (f + (p * f * z - 0.5f * z + n * -2.12194440e-4f));
}

/// log(u) + (x - (u - 1)) / u with u = 1 + x rounded; -infinity at -1, NaN below.
[[gnu::always_inline]] TROUPE_HOST_DEVICE inline float log1p(float x) {
#ifdef __CUDA_ARCH__
  return ::log1pf(x);
#else
  const float u = 1.0f + x;
  float y = log_of_normal(u) + (x - (u - 1.0f)) / u;
  y = bounded(y, std::fabs(x) < 1e-8f, x);  // -0 too
  y = bounded(y, x == -1.0f, -HUGE_VALF);
  y = bounded(y, !(x >= -1.0f), std::bit_cast<float>(0x7fc00000));
  return bounded(y, x == HUGE_VALF, HUGE_VALF);
#endif
}

[[gnu::always_inline]] TROUPE_HOST_DEVICE inline float sigmoid(float x) { return 1.0f / (1.0f + fast_math::exp(-x)); }

}  // namespace troupe::fast_math
