// SPDX-License-Identifier: Apache-2.0
// The types that arithmetic is done in. For the host and for GPUs, so this header includes little.
#pragma once
#include <bit>
#include <complex>
#include <type_traits>

#include "base/host_device.h"
#include "troupe/dtype.h"

namespace troupe {

template <class T> inline constexpr bool is_half = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

template <class T>
inline constexpr bool is_complex_type = std::is_same_v<T, complex64> || std::is_same_v<T, complex128>;

template <class T> struct PartOf { using Type = T; };
template <class R> struct PartOf<std::complex<R>> { using Type = R; };
/// The type of the real and imaginary parts of complex T; T itself where it is real.
template <class T> using Real = typename PartOf<T>::Type;

/// The type of complex numbers with parts of T.
template <class T> using Complex = std::complex<Real<T>>;

/// The type that arithmetic on T is done in: float for the 16-bit floats.
template <class T> using Arithmetic = std::conditional_t<is_half<T>, float, T>;

/// An element as its arithmetic type, and back.
template <class T> TROUPE_HOST_DEVICE inline Arithmetic<T> widen(T x) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
  } else if constexpr (is_half<T>) {
#ifdef __CUDA_ARCH__
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
    return wide;
#else
    return static_cast<float>(x);
#endif
  } else {
    return x;
  }
}
template <class T> TROUPE_HOST_DEVICE inline T narrow(Arithmetic<T> x) {
  if constexpr (is_half<T>) {
#ifdef __CUDA_ARCH__
    T half;
    if constexpr (std::is_same_v<T, bfloat16>) asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half.bits) : "f"(x));
    else asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half.bits) : "f"(x));
    return half;
#else
    return T(x);
#endif
  } else {
    return x;
  }
}

}  // namespace troupe
