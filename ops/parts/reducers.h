// SPDX-License-Identifier: Apache-2.0
// What reductions do with elements, for the loops of CPUs and the kernels of GPUs. GPUs have none of complex numbers.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>

#include "ops/parts/arithmetic.h"

namespace troupe::reducers {

/// What sums and products of T are kept in: 64 bits for integers, which then wrap around as T's own arithmetic would.
template <class T> using WideArithmetic = std::conditional_t<std::is_integral_v<T>, uint64_t, Arithmetic<T>>;

template <class T> TROUPE_HOST_DEVICE WideArithmetic<T> lift(T x) {
  if constexpr (std::is_integral_v<T>) return static_cast<uint64_t>(static_cast<int64_t>(x));
  else return widen(x);
}
template <class T> TROUPE_HOST_DEVICE T lower(WideArithmetic<T> x) {
  if constexpr (std::is_integral_v<T>) return static_cast<T>(x);
  else return narrow<T>(x);
}

// How accumulators meet: the accumulator of nothing, and two of them.
template <class A> struct Adding {
  using Join = Adding;
  using Accumulator = A;
  TROUPE_HOST_DEVICE static A nothing() { return A(0); }
  TROUPE_HOST_DEVICE static A merge(A a, A b) { return a + b; }
};
template <class A> struct Multiplying {
  using Join = Multiplying;
  using Accumulator = A;
  TROUPE_HOST_DEVICE static A nothing() { return A(1); }
  TROUPE_HOST_DEVICE static A merge(A a, A b) { return a * b; }
};
template <class A> struct Largest {
  using Join = Largest;
  using Accumulator = A;
  using Limits = std::numeric_limits<A>;
  TROUPE_HOST_DEVICE static A nothing() { return Limits::has_infinity ? -Limits::infinity() : Limits::lowest(); }
  TROUPE_HOST_DEVICE static A merge(A a, A b) { return b > a || b != b ? b : a; }
};
template <class A> struct Smallest {
  using Join = Smallest;
  using Accumulator = A;
  using Limits = std::numeric_limits<A>;
  TROUPE_HOST_DEVICE static A nothing() { return Limits::has_infinity ? Limits::infinity() : Limits::max(); }
  TROUPE_HOST_DEVICE static A merge(A a, A b) { return b < a || b != b ? b : a; }
};
struct And {
  using Join = And;
  using Accumulator = bool;
  TROUPE_HOST_DEVICE static bool nothing() { return true; }
  TROUPE_HOST_DEVICE static bool merge(bool a, bool b) { return a & b; }
};
struct Or {
  using Join = Or;
  using Accumulator = bool;
  TROUPE_HOST_DEVICE static bool nothing() { return false; }
  TROUPE_HOST_DEVICE static bool merge(bool a, bool b) { return a | b; }
};

// How accumulators become results.
template <class T> struct Lowered {
  using End = Lowered;
  TROUPE_HOST_DEVICE static T finish(WideArithmetic<T> a, int64_t) { return lower<T>(a); }
};
template <class T> struct Narrowed {
  using End = Narrowed;
  TROUPE_HOST_DEVICE static T finish(Arithmetic<T> a, int64_t) { return narrow<T>(a); }
};

// A reducer is made of these, and of how an accumulator takes an element. Parts have names, so that reducers share the
// loops of those they have in common.
template <class T> struct Sum : Adding<WideArithmetic<T>>, Lowered<T> {
  using Start = Sum;
  TROUPE_HOST_DEVICE static WideArithmetic<T> take(WideArithmetic<T> a, T x) { return a + lift(x); }
};
template <class T> struct Mean : Sum<T> {
  using End = Mean;
  TROUPE_HOST_DEVICE static T finish(WideArithmetic<T> a, int64_t n) {
    if constexpr (std::is_integral_v<T> && std::is_signed_v<T>)
      return n == 0 ? T(0) : static_cast<T>(static_cast<int64_t>(a) / n);
    else if constexpr (std::is_integral_v<T>) return n == 0 ? T(0) : static_cast<T>(a / static_cast<uint64_t>(n));
    else if constexpr (is_complex_type<T>) return n == 0 ? T(0) : lower<T>(a / static_cast<WideArithmetic<T>>(n));
    else return lower<T>(a / static_cast<WideArithmetic<T>>(n));
  }
};
template <class T> struct Prod : Multiplying<WideArithmetic<T>>, Lowered<T> {
  using Start = Prod;
  TROUPE_HOST_DEVICE static WideArithmetic<T> take(WideArithmetic<T> a, T x) { return a * lift(x); }
};
template <class T> struct Max : Largest<Arithmetic<T>>, Narrowed<T> {
  using Start = Max;
  TROUPE_HOST_DEVICE static Arithmetic<T> take(Arithmetic<T> a, T x) { return Max::merge(a, widen(x)); }
};
template <class T> struct Min : Smallest<Arithmetic<T>>, Narrowed<T> {
  using Start = Min;
  TROUPE_HOST_DEVICE static Arithmetic<T> take(Arithmetic<T> a, T x) { return Min::merge(a, widen(x)); }
};
template <class T> struct SumOfSquares : Adding<WideArithmetic<T>> {
  using Start = SumOfSquares;
  TROUPE_HOST_DEVICE static WideArithmetic<T> take(WideArithmetic<T> a, T x) {
    if constexpr (is_complex_type<T>) return a + std::norm(x);
    else return a + lift(x) * lift(x);
  }
};
template <class T> struct EuclideanNorm : SumOfSquares<T> {
  using End = EuclideanNorm;
  TROUPE_HOST_DEVICE static T finish(WideArithmetic<T> a, int64_t) {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(std::sqrt(static_cast<double>(a)));
    else return lower<T>(std::sqrt(a));
  }
};
template <class T> struct HalfSquares : SumOfSquares<T> {
  using End = HalfSquares;
  TROUPE_HOST_DEVICE static T finish(WideArithmetic<T> a, int64_t) { return lower<T>(a * WideArithmetic<T>(0.5f)); }
};
template <class T> struct All : And, Narrowed<bool> {
  using Start = All;
  TROUPE_HOST_DEVICE static bool take(bool a, bool x) { return a & x; }
};
template <class T> struct Any : Or, Narrowed<bool> {
  using Start = Any;
  TROUPE_HOST_DEVICE static bool take(bool a, bool x) { return a | x; }
};

}  // namespace troupe::reducers
