// SPDX-License-Identifier: Apache-2.0
// Functions of two elements, for the loops of CPUs and the kernels of GPUs. GPUs have none of complex numbers, and none
// that can fail.
#pragma once
#include <cmath>
#include <limits>

#include "ops/parts/wrapping.h"

namespace troupe::binary_functors {

struct Add {
  template <class T> TROUPE_HOST_DEVICE static T apply(T a, T b) { return wrapping_add(a, b); }
};
struct Sub {
  template <class T> TROUPE_HOST_DEVICE static T apply(T a, T b) { return wrapping_subtract(a, b); }
};
struct Mul {
  template <class T> TROUPE_HOST_DEVICE static T apply(T a, T b) { return wrapping_multiply(a, b); }
};
struct SquaredDifference {
  template <class T> TROUPE_HOST_DEVICE static T apply(T a, T b) {
    const T d = wrapping_subtract(a, b);
    if constexpr (is_complex_type<T>) return wrapping_multiply(std::conj(d), d);
    else return wrapping_multiply(d, d);
  }
};
template <class T> TROUPE_HOST_DEVICE T truncated_quotient(T a, T b) {
  if constexpr (std::is_signed_v<T>)
    if (b == T(-1)) return wrapping_subtract(T(0), a);  // the smallest integer by -1 wraps around
  return static_cast<T>(a / b);
}
template <class T> TROUPE_HOST_DEVICE T truncated_rest(T a, T b) {
  if constexpr (!std::is_integral_v<T>) return std::fmod(a, b);
  else if constexpr (std::is_signed_v<T>) return b == T(-1) ? T(0) : static_cast<T>(a % b);
  else return static_cast<T>(a % b);
}

struct DivideFloats {
  template <class T> TROUPE_HOST_DEVICE static T apply(T a, T b) { return quotient(a, b); }
};
struct TruncateDivideFloats {
  template <class T> TROUPE_HOST_DEVICE static T apply(T a, T b) { return std::trunc(a / b); }
};
struct IntegerFault {
  static constexpr const char* fault = "integer division by zero";
  template <class T> TROUPE_HOST_DEVICE static bool fails(T, T b) { return b == T(0); }
};
struct DivideIntegers : IntegerFault {
  template <class T> TROUPE_HOST_DEVICE static T apply(T a, T b) { return truncated_quotient(a, b); }
};
struct FloorDivideIntegers : IntegerFault {
  template <class T> TROUPE_HOST_DEVICE static T apply(T a, T b) {
    const T q = truncated_quotient(a, b);
    return truncated_rest(a, b) != T(0) && (a < T(0)) != (b < T(0)) ? static_cast<T>(q - 1) : q;
  }
};
struct FloorDivideFloats {
  template <class T> TROUPE_HOST_DEVICE static T apply(T a, T b) { return std::floor(a / b); }
};
struct RestIntegers : IntegerFault {
  template <class T> TROUPE_HOST_DEVICE static T apply(T a, T b) { return truncated_rest(a, b); }
};
struct RestFloats {
  template <class T> TROUPE_HOST_DEVICE static T apply(T a, T b) { return truncated_rest(a, b); }
};
struct FloorRest {
  template <class T> TROUPE_HOST_DEVICE static T apply(T a, T b) {
    const T r = truncated_rest(a, b);
    return r != T(0) && (r < T(0)) != (b < T(0)) ? static_cast<T>(r + b) : r;
  }
};
struct FloorRestIntegers : IntegerFault, FloorRest {};

// Powers whose result is a product, a quotient or a root: within 2 units in the last place of pow's.
struct FirstPower {
  template <class T> TROUPE_HOST_DEVICE static T apply(T a, T) { return a; }
};
struct SecondPower {
  template <class T> TROUPE_HOST_DEVICE static T apply(T a, T) { return a * a; }
};
struct ThirdPower {
  template <class T> TROUPE_HOST_DEVICE static T apply(T a, T) { return a * a * a; }
};
struct InversePower {
  template <class T> TROUPE_HOST_DEVICE static T apply(T a, T) { return T(1) / a; }
};
/// Of -0 and -infinity pow gives 0 and infinity.
struct HalfPower {
  template <class T> TROUPE_HOST_DEVICE static T apply(T a, T) {
    const T root = std::sqrt(a) + T(0);
    return a == -std::numeric_limits<T>::infinity() ? -a : root;
  }
};
struct InverseHalfPower {
  template <class T> TROUPE_HOST_DEVICE static T apply(T a, T b) { return T(1) / HalfPower::apply(a, b); }
};
struct AnyPower {
  template <class T> TROUPE_HOST_DEVICE static T apply(T a, T b) { return std::pow(a, b); }
};
/// Calls `f` with the way to powers by the exponent b: with the same one in every loop and on every device, so that
/// all give the same bits, whether or not the exponent is one for all elements.
template <class T, class F> TROUPE_HOST_DEVICE auto with_power(T b, const F& f) {
  if constexpr (std::is_floating_point_v<T>) {
    if (b == T(2)) return f(SecondPower());
    if (b == T(0.5)) return f(HalfPower());
    if (b == T(1)) return f(FirstPower());
    if (b == T(-1)) return f(InversePower());
    // These are rounded twice, and pow of float64 but once.
    if constexpr (!std::is_same_v<T, double>) {
      if (b == T(3)) return f(ThirdPower());
      if (b == T(-0.5)) return f(InverseHalfPower());
    }
  }
  return f(AnyPower());
}
struct PowFloats {
  template <class T> TROUPE_HOST_DEVICE static T apply(T a, T b) {
    return with_power(b, [=](auto power) { return decltype(power)::apply(a, b); });
  }
};
struct PowIntegers {
  static constexpr const char* fault = "an integer to a negative integer power";
  template <class T> TROUPE_HOST_DEVICE static bool fails(T, T b) {
    if constexpr (std::is_signed_v<T>) return b < T(0);
    else return false;
  }
  template <class T> TROUPE_HOST_DEVICE static T apply(T a, T b) {
    T result = 1;
    for (; b > T(0); b = static_cast<T>(b / 2)) {
      if (b % 2) result = wrapping_multiply(result, a);
      a = wrapping_multiply(a, a);
    }
    return result;
  }
};

// A NaN in either operand is the result, as in TensorFlow.
struct Maximum {
  template <class T> TROUPE_HOST_DEVICE static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) return a > b ? a : b;
    else return a > b || a != a ? a : b;
  }
};
struct Minimum {
  template <class T> TROUPE_HOST_DEVICE static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) return a < b ? a : b;
    else return a < b || a != a ? a : b;
  }
};

#define TROUPE_PREDICATE(name, expression)                                                                 \
  struct name {                                                                                            \
    using Predicate = void;                                                                                \
    template <class T> TROUPE_HOST_DEVICE static bool apply(const T& a, const T& b) { return expression; } \
  }
TROUPE_PREDICATE(Less, a < b);
TROUPE_PREDICATE(LessEqual, a <= b);
TROUPE_PREDICATE(Greater, a > b);
TROUPE_PREDICATE(GreaterEqual, a >= b);
TROUPE_PREDICATE(Equal, a == b);
TROUPE_PREDICATE(NotEqual, a != b);
// Without branches, so that loops over them are vectorised.
TROUPE_PREDICATE(LogicalAnd, static_cast<bool>(a& b));
TROUPE_PREDICATE(LogicalOr, static_cast<bool>(a | b));
#undef TROUPE_PREDICATE

}  // namespace troupe::binary_functors
