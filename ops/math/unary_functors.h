// SPDX-License-Identifier: Apache-2.0
// Functions of one element, for the loops of CPUs and the kernels of GPUs. GPUs have none of complex numbers.
#pragma once
#include <cmath>

#include "ops/parts/fast_math.h"
#include "ops/parts/wrapping.h"

namespace troupe::unary_functors {

#define TROUPE_UNARY(name, expression)                                                               \
  struct name {                                                                                      \
    template <class T> TROUPE_HOST_DEVICE static T apply(T x) { return static_cast<T>(expression); } \
  }
#define TROUPE_UNARY_PREDICATE(name, expression)                                        \
  struct name {                                                                         \
    using Predicate = void;                                                             \
    template <class T> TROUPE_HOST_DEVICE static bool apply(T x) { return expression; } \
  }

struct Neg {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x) {
    if constexpr (std::is_integral_v<T>) return wrapping_subtract(T(0), x);
    else return -x;
  }
};
struct Square {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x) { return wrapping_multiply(x, x); }
};
struct Abs {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x) {
    if constexpr (std::is_integral_v<T>) return x < T(0) ? Neg::apply(x) : x;
    else return std::fabs(x);
  }
};
struct Sign {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x) {
    if constexpr (is_complex_type<T>) return x == T(0) ? T(0) : x / std::abs(x);
    else if constexpr (std::is_floating_point_v<T>) return x != x ? x : T((x > T(0)) - (x < T(0)));
    else return T((x > T(0)) - (x < T(0)));
  }
};
struct Exp {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x) {
    if constexpr (std::is_same_v<T, float>) return fast_math::exp(x);
    else return std::exp(x);
  }
};
TROUPE_UNARY(Reciprocal, quotient(T(1), x));
TROUPE_UNARY(Sqrt, std::sqrt(x));
TROUPE_UNARY(Rsqrt, T(1) / std::sqrt(x));
// Of complex numbers, the two are exact near 0 for being computed in float64.
struct Expm1 {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x) {
    if constexpr (is_complex_type<T>) return T(std::exp(std::complex<double>(x)) - 1.0);
    else return std::expm1(x);
  }
};
struct Log1p {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x) {
    if constexpr (is_complex_type<T>) return std::abs(x) < 1e-8f ? x : T(std::log(1.0 + std::complex<double>(x)));
    else if constexpr (std::is_same_v<T, float>) return fast_math::log1p(x);
    else return std::log1p(x);
  }
};
TROUPE_UNARY(Log, std::log(x));
TROUPE_UNARY(Sin, std::sin(x));
TROUPE_UNARY(Cos, std::cos(x));
TROUPE_UNARY(Tan, std::tan(x));
TROUPE_UNARY(Asin, std::asin(x));
TROUPE_UNARY(Acos, std::acos(x));
TROUPE_UNARY(Atan, std::atan(x));
TROUPE_UNARY(Sinh, std::sinh(x));
TROUPE_UNARY(Cosh, std::cosh(x));
TROUPE_UNARY(Asinh, std::asinh(x));
TROUPE_UNARY(Acosh, std::acosh(x));
TROUPE_UNARY(Atanh, std::atanh(x));
struct Erf {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x) {
    if constexpr (std::is_same_v<T, float>) return fast_math::erf(x);
    else return std::erf(x);
  }
};
struct Erfc {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x) {
    if constexpr (std::is_same_v<T, float>) return fast_math::erfc(x);
    else return std::erfc(x);
  }
};
TROUPE_UNARY(Floor, std::floor(x));
TROUPE_UNARY(Ceil, std::ceil(x));
TROUPE_UNARY(Rint, std::nearbyint(x));
struct Round {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x) {
    if constexpr (std::is_integral_v<T>) return x;
    else return std::nearbyint(x);
  }
};
TROUPE_UNARY_PREDICATE(IsNan, x != x);
TROUPE_UNARY_PREDICATE(IsInf, std::isinf(x));
TROUPE_UNARY_PREDICATE(IsFinite, std::isfinite(x));
TROUPE_UNARY_PREDICATE(LogicalNot, !x);
#undef TROUPE_UNARY
#undef TROUPE_UNARY_PREDICATE

}  // namespace troupe::unary_functors
