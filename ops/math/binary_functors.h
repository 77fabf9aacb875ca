// SPDX-License-Identifier: Apache-2.0
// Functions of two elements, for the loops of CPUs and the kernels of GPUs. GPUs have none of complex numbers, and none
// that can fail.
#pragma once
#include <cmath>

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
    if constexpr (std::is_same_v<T, complex64>) return wrapping_multiply(std::conj(d), d);
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

struct PowFloats {
  template <class T> TROUPE_HOST_DEVICE static T apply(T a, T b) { return std::pow(a, b); }
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
TROUPE_PREDICATE(LogicalAnd, a&& b);
TROUPE_PREDICATE(LogicalOr, a || b);
#undef TROUPE_PREDICATE

}  // namespace troupe::binary_functors
