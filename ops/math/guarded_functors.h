// SPDX-License-Identifier: Apache-2.0
// Functions of two elements with rules of their own at zero, for the loops of CPUs and the kernels of GPUs. GPUs have
// none of complex numbers.
#pragma once
#include <cmath>

#include "ops/parts/wrapping.h"

namespace troupe::guarded_functors {

/// log(1 + y), of complex numbers in float64 so that it is exact near 0.
template <class T> TROUPE_HOST_DEVICE T log1p(T y) {
  if constexpr (is_complex_type<T>) return T(std::log(1.0 + std::complex<double>(y)));
  else return std::log1p(y);
}

struct Xlogy {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x, T y) { return x == T(0) ? T(0) : x * std::log(y); }
};
struct Xlog1py {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x, T y) { return x == T(0) ? T(0) : x * log1p(y); }
};
struct Xdivy {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x, T y) { return x == T(0) ? T(0) : quotient(x, y); }
};
struct MulNoNan {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x, T y) { return y == T(0) ? T(0) : wrapping_multiply(x, y); }
};
struct DivNoNan {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x, T y) { return y == T(0) ? T(0) : quotient(x, y); }
};
struct Atan2 {
  template <class T> TROUPE_HOST_DEVICE static T apply(T y, T x) { return std::atan2(y, x); }
};
struct NextAfter {
  template <class T> TROUPE_HOST_DEVICE static T apply(T x, T towards) { return std::nextafter(x, towards); }
};

}  // namespace troupe::guarded_functors
