// SPDX-License-Identifier: Apache-2.0
// The program of a _FusedElementwise: what the kernels of CPUs and GPUs share, so that both refuse the same and make
// results of the same shape. Implemented in ops/fused/fused_program.cpp.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "troupe/kernel.h"

namespace troupe {

/// How many inputs and how many functions a program may have.
inline constexpr size_t kMostFused = 64;

/// What a function of a program does with its operands.
enum class FusedKind {
  kUnary,   // element by element of one
  kBinary,  // of two
  kReduce,  // the last dimension of one becomes 1
  kSpread   // repeats one to the shape of another
};

/// A function that programs may be made of. Of the name of an op, which outlives it.
struct FusedFunction {
  std::string_view op;
  FusedKind kind = FusedKind::kBinary;
  bool broadcasts = true;  // two operands of different shapes
};

/// One function of a program. Operands below the number of inputs are inputs, the rest results in their order.
struct FusedStep {
  FusedFunction function;
  size_t a = 0, b = 0;  // b == a for a function of one tensor
  /// Whether it must have whole rows, along the last dimension, of its operands.
  bool by_rows() const { return function.kind == FusedKind::kReduce || function.kind == FusedKind::kSpread; }
};

/// A value.
struct FusedProgram {
  DType dtype = DType::kInvalid;
  size_t inputs = 0;
  std::vector<FusedStep> steps = {};

  /// Of the attributes of a node. `find` gives the function of an op, or nullopt. Errors: kInvalidArgument for
  /// functions that are not known, operands that do not come before their function, too many of either.
  static Result<FusedProgram> parse(const KernelInit& init,
                                    const std::function<std::optional<FusedFunction>(std::string_view op)>& find);
  /// Whether any of its functions must have whole rows.
  bool by_rows() const;
  /// Of the result. Errors: what the functions one by one would say of the shapes.
  Result<Shape> shape(const KernelContext& c) const;
  /// Of all values, the inputs first. Errors: the same.
  Result<std::vector<Shape>> shapes(const KernelContext& c) const;
  /// In the place of an input that nobody else wants: an element of the result is written after all inputs' are read.
  Result<Tensor> result(KernelContext& c, const Shape& shape) const;
};

}  // namespace troupe
