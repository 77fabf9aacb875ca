// SPDX-License-Identifier: Apache-2.0
// Kernels that apply one function to each element. The loops are templates over function and type; everything
// around them (broadcasting, threads, reuse of buffers) is one class for unary and one for binary functions.
// Implemented in ops/parts/elementwise.cpp.
#pragma once
#include <array>

#include "ops/parts/broadcast.h"
#include "ops/parts/instruction_sets.h"
#include "ops/parts/type_dispatch.h"
#include "ops/parts/wrapping.h"

namespace troupe {

/// Which operand of a binary loop is one element for all.
enum class Operands { kBoth, kLeftScalar, kRightScalar };

/// out[i] = f(a[i], b[i]) for i < n; false where an element has no result (division of an integer by zero).
using BinaryLoop = bool (*)(void* out, const void* a, const void* b, int64_t n, Operands operands);
/// out[i] = f(x[i]) for i < n. `parameters` are the kernel's two floating attributes.
using UnaryLoop = void (*)(void* out, const void* x, int64_t n, const double* parameters);

/// An error where shapes that must agree do not.
Status same_shapes(const Shape& a, const Shape& b);

/// A broadcasting function of two tensors. The output takes the buffer of an input that nobody else wants.
class BinaryKernel final : public ComputeKernel {
 public:
  /// `fault` is the error's text where the loop returns false.
  /// Without `broadcasts`, shapes that differ are an error.
  BinaryKernel(BinaryLoop loop, DType out, int64_t grain, const char* fault, bool broadcasts = true)
      : loop_(loop), out_(out), grain_(grain), fault_(fault), broadcasts_(broadcasts) {}
  Status compute(KernelContext& c) override;
  bool shareable() const override { return true; }
  BinaryLoop loop() const { return loop_; }
  DType out() const { return out_; }
  int64_t grain() const { return grain_; }
  bool broadcasts() const { return broadcasts_; }

 private:
  const BinaryLoop loop_;
  const DType out_;
  const int64_t grain_;
  const char* const fault_;
  const bool broadcasts_;
};

/// A function of one tensor, in place where nobody else wants the input.
class UnaryKernel final : public ComputeKernel {
 public:
  UnaryKernel(UnaryLoop loop, DType out, int64_t grain, double first = 0, double second = 0)
      : loop_(loop), out_(out), grain_(grain), parameters_{first, second} {}
  Status compute(KernelContext& c) override;
  bool shareable() const override { return true; }
  UnaryLoop loop() const { return loop_; }
  DType out() const { return out_; }
  int64_t grain() const { return grain_; }

 private:
  const UnaryLoop loop_;
  const DType out_;
  const int64_t grain_;
  const double parameters_[2];
};

namespace elementwise {

/// F::apply(a, b) on Arithmetic<T>; F::fails(a, b), if there is one, says that there is no result.
template <class F, class T, class R>
[[gnu::always_inline]] inline bool binary_body(void* out, const void* a, const void* b, int64_t n, Operands operands) {
  R* o = static_cast<R*>(out);
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  const auto result = [](Arithmetic<T> p, Arithmetic<T> q) [[gnu::always_inline]] {
    if constexpr (std::is_same_v<T, R>) return narrow<R>(F::apply(p, q));
    else return static_cast<R>(F::apply(p, q));
  };
  if constexpr (requires { F::fails(Arithmetic<T>(), Arithmetic<T>()); }) {
    const int64_t i = operands != Operands::kLeftScalar, j = operands != Operands::kRightScalar;
    for (int64_t k = 0; k < n; ++k) {
      const auto p = widen(x[k * i]), q = widen(y[k * j]);
      if (F::fails(p, q)) return false;
      o[k] = result(p, q);
    }
  } else if (operands == Operands::kBoth) {
#pragma GCC ivdep
    for (int64_t k = 0; k < n; ++k) o[k] = result(widen(x[k]), widen(y[k]));
  } else if (operands == Operands::kLeftScalar) {
    const auto p = widen(*x);
#pragma GCC ivdep
    for (int64_t k = 0; k < n; ++k) o[k] = result(p, widen(y[k]));
  } else {
    const auto q = widen(*y);
#pragma GCC ivdep
    for (int64_t k = 0; k < n; ++k) o[k] = result(widen(x[k]), q);
  }
  return true;
}

// Flattened, since a call left in the loop would keep it from being vectorised.
template <class F, class T, class R>
[[gnu::flatten]] bool binary_plain(void* out, const void* a, const void* b, int64_t n, Operands operands) {
  return binary_body<F, T, R>(out, a, b, n, operands);
}
template <class F, class T, class R>
[[gnu::flatten]] TROUPE_AVX2 bool binary_avx2(void* out, const void* a, const void* b, int64_t n, Operands operands) {
  return binary_body<F, T, R>(out, a, b, n, operands);
}
template <class F, class T, class R>
[[gnu::flatten]] TROUPE_AVX512 bool binary_avx512(void* out, const void* a, const void* b, int64_t n,
                                                  Operands operands) {
  return binary_body<F, T, R>(out, a, b, n, operands);
}

/// F::apply(x) or F::apply(x, parameters) on Arithmetic<T>.
template <class F, class T, class R>
[[gnu::always_inline]] inline void unary_body(void* out, const void* in, int64_t n, const double* parameters) {
  R* o = static_cast<R*>(out);
  const T* x = static_cast<const T*>(in);
#pragma GCC ivdep
  for (int64_t k = 0; k < n; ++k) {
    const Arithmetic<T> v = widen(x[k]);
    if constexpr (!std::is_same_v<T, R>) o[k] = static_cast<R>(F::apply(v));
    else if constexpr (requires { F::apply(v, parameters); }) o[k] = narrow<R>(F::apply(v, parameters));
    else o[k] = narrow<R>(F::apply(v));
  }
}
template <class F, class T, class R>
[[gnu::flatten]] void unary_plain(void* out, const void* in, int64_t n, const double* parameters) {
  unary_body<F, T, R>(out, in, n, parameters);
}
template <class F, class T, class R>
[[gnu::flatten]] TROUPE_AVX2 void unary_avx2(void* out, const void* in, int64_t n, const double* parameters) {
  unary_body<F, T, R>(out, in, n, parameters);
}
template <class F, class T, class R>
[[gnu::flatten]] TROUPE_AVX512 void unary_avx512(void* out, const void* in, int64_t n, const double* parameters) {
  unary_body<F, T, R>(out, in, n, parameters);
}

/// The result type: bool for predicates, else T.
template <class F, class T> using ResultOf = std::conditional_t < requires { typename F::Predicate; }
, bool, T > ;

}  // namespace elementwise

/// The schema of a binary function z of x and y, which broadcast.
template <class... T> OpDef binary_op(const char* name, TypeList<T...> types, std::string doc) {
  return std::move(OpDef(name)
                       .input("x: T")
                       .input("y: T")
                       .output("z: T")
                       .attr(type_attr("T", types))
                       .shape(broadcast_shape)
                       .doc(std::move(doc)));
}

/// A loop over inputs of one type, with the type of its result.
template <class Loop> struct TypedLoop {
  DType in, out;
  Loop loop;
};

/// Registers kernels of these loops, chosen by type attribute T.
void add_binary_loops(KernelRegistry& kernels, std::string_view op, std::span<const TypedLoop<BinaryLoop>> loops,
                      int64_t grain, const char* fault, bool broadcasts);
/// `parameter` names a float attribute, the loop's first parameter, or is empty.
void add_unary_loops(KernelRegistry& kernels, std::string_view op, std::span<const TypedLoop<UnaryLoop>> loops,
                     int64_t grain, std::string_view parameter);

namespace elementwise {

template <class F, class T> TypedLoop<BinaryLoop> binary_loop() {
  using R = ResultOf<F, T>;
  if constexpr (std::is_same_v<T, float>) {
    if (has_avx512()) return {dtype_of<T>, dtype_of<R>, binary_avx512<F, T, R>};
    if (has_avx2()) return {dtype_of<T>, dtype_of<R>, binary_avx2<F, T, R>};
  }
  return {dtype_of<T>, dtype_of<R>, binary_plain<F, T, R>};
}
template <class F, class T> TypedLoop<UnaryLoop> unary_loop() {
  using R = ResultOf<F, T>;
  if constexpr (std::is_same_v<T, float>) {
    if (has_avx512()) return {dtype_of<T>, dtype_of<R>, unary_avx512<F, T, R>};
    if (has_avx2()) return {dtype_of<T>, dtype_of<R>, unary_avx2<F, T, R>};
  }
  return {dtype_of<T>, dtype_of<R>, unary_plain<F, T, R>};
}

}  // namespace elementwise

/// Registers the binary function F for every T of the list. F has `static X apply(X, X)`, and may have
/// `fails`, `Predicate` (the result is bool), `SameShape` (no broadcasting) and `static constexpr const char* fault`.
template <class F, class... T>
void add_binary_kernels(KernelRegistry& kernels, std::string_view op, TypeList<T...>, int64_t grain = kCheapGrain) {
  const char* fault = "";
  constexpr bool broadcasts = !requires { typename F::SameShape; };
  if constexpr (requires { F::fault; }) fault = F::fault;
  add_binary_loops(kernels, op, std::array{elementwise::binary_loop<F, T>()...}, grain, fault, broadcasts);
}

/// Registers the unary function F for every T of the list; `parameter` names a float attribute.
template <class F, class... T>
void add_unary_kernels(KernelRegistry& kernels, std::string_view op, TypeList<T...>, int64_t grain = kCheapGrain,
                       std::string_view parameter = "") {
  add_unary_loops(kernels, op, std::array{elementwise::unary_loop<F, T>()...}, grain, parameter);
}

}  // namespace troupe
