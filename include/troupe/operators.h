// SPDX-License-Identifier: Apache-2.0
// Operators on outputs: `0.5f * x + y`, `-x`, `x > 0`. Implemented in graph/operators.cpp; troupe/scope.h includes it.
//
// Each adds a node (TensorFlow's op) and returns its output; shapes broadcast and gradients flow as by the op.
//
// - The node goes beside an operand (Scope::beside): into its name scope, on its device, into its branch or loop. That
//   operand is the one in the inner branch or loop; within one, the one that is further along: with more nodes on the
//   longest way to it, where constants and values of variables have none. So x + f(x) is beside f(x), and h * w beside
//   h. Of two that are as far it is the left one. A branch or body that begins with outputs from outside alone takes
//   its Scope's builders. Operands of two branches, or of loops that are not within one another, are a fault.
// - Where that is not the place that is meant, a builder names it: scope.op("AddV2", {x, y}).
// - A number becomes a constant of the other operand's dtype. That it must fit: 0.5 with int32, 300 with uint8 and 1e30
//   with float16 are faults; floating dtypes take the nearest value. A long double counts as the nearest double.
// - Faults stick to that scope with the caller's line, as those of builders do, and the result is empty. An empty
//   operand is a fault too, unless there is one already; where no operand tells a scope, the result is empty alone.
// - One thread at a time, as for Scope.
//
// What C++ says of an Output stays: == and != compare which output it is, !x, x && y and x || y ask whether there is
// one. Of booleans ~x, x & y, x | y, x ^ y compute; TensorFlow's Equal is scope.op("Equal", {x, y}).
#pragma once
#include <source_location>
#include <type_traits>

#include "troupe/export.h"
#include "troupe/graph.h"

namespace TROUPE_API troupe {

/// An operand, with the line that it stands in. Outputs become one by themselves.
struct Operand {
  Operand(const Output& output, std::source_location where = std::source_location::current())
      : output(output), where(where) {}
  Output output;
  std::source_location where;
};

/// An operand that is a number of C++, with its line. Numbers become one by themselves.
class Number {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> Number(T value, std::source_location where = std::source_location::current())
      : where(where) {
    if constexpr (std::is_floating_point_v<T>) kind_ = Kind::kReal, real_ = static_cast<double>(value);
    else if constexpr (std::is_signed_v<T>) kind_ = Kind::kSigned, signed_ = value;
    else kind_ = Kind::kUnsigned, unsigned_ = value;
  }
  Number(float16 value, std::source_location where = std::source_location::current())
      : Number(static_cast<float>(value), where) {}
  Number(bfloat16 value, std::source_location where = std::source_location::current())
      : Number(static_cast<float>(value), where) {}
  Number(complex64 value, std::source_location where = std::source_location::current())
      : Number(complex128(value), where) {}
  Number(complex128 value, std::source_location where = std::source_location::current())
      : where(where), kind_(Kind::kComplex), real_(value.real()), imaginary_(value.imag()) {}

  /// A scalar of that value. Error: kInvalidArgument when `dtype` has none that fits.
  Result<Tensor> as(DType dtype) const;
  std::source_location where;

 private:
  enum class Kind : uint8_t { kSigned, kUnsigned, kReal, kComplex };
  Kind kind_;
  int64_t signed_ = 0;
  uint64_t unsigned_ = 0;
  double real_ = 0, imaginary_ = 0;
};

// AddV2, Sub, Mul; of floating and complex numbers RealDiv, of integers TruncateDiv, which is C++'s; TruncateMod.
Output operator+(Operand a, Operand b);
Output operator+(Operand a, Number b);
Output operator+(Number a, Operand b);
Output operator-(Operand a, Operand b);
Output operator-(Operand a, Number b);
Output operator-(Number a, Operand b);
Output operator*(Operand a, Operand b);
Output operator*(Operand a, Number b);
Output operator*(Number a, Operand b);
Output operator/(Operand a, Operand b);
Output operator/(Operand a, Number b);
Output operator/(Number a, Operand b);
Output operator%(Operand a, Operand b);
Output operator%(Operand a, Number b);
Output operator%(Number a, Operand b);

// Less, LessEqual, Greater, GreaterEqual.
Output operator<(Operand a, Operand b);
Output operator<(Operand a, Number b);
Output operator<(Number a, Operand b);
Output operator<=(Operand a, Operand b);
Output operator<=(Operand a, Number b);
Output operator<=(Number a, Operand b);
Output operator>(Operand a, Operand b);
Output operator>(Operand a, Number b);
Output operator>(Number a, Operand b);
Output operator>=(Operand a, Operand b);
Output operator>=(Operand a, Number b);
Output operator>=(Number a, Operand b);

// Of booleans LogicalAnd, LogicalOr, NotEqual; of integers BitwiseAnd, BitwiseOr, BitwiseXor.
Output operator&(Operand a, Operand b);
Output operator&(Operand a, Number b);
Output operator&(Number a, Operand b);
Output operator|(Operand a, Operand b);
Output operator|(Operand a, Number b);
Output operator|(Number a, Operand b);
Output operator^(Operand a, Operand b);
Output operator^(Operand a, Number b);
Output operator^(Number a, Operand b);

/// Neg.
Output operator-(Operand x);
/// LogicalNot of booleans, Invert of integers.
Output operator~(Operand x);

// a = a + b and so on: `a` becomes another output, nothing changes in the graph.
Output& operator+=(Output& a, Operand b);
Output& operator+=(Output& a, Number b);
Output& operator-=(Output& a, Operand b);
Output& operator-=(Output& a, Number b);
Output& operator*=(Output& a, Operand b);
Output& operator*=(Output& a, Number b);
Output& operator/=(Output& a, Operand b);
Output& operator/=(Output& a, Number b);

}  // namespace troupe
