// SPDX-License-Identifier: Apache-2.0
// Functions of one tensor, element by element, on GPUs.
#include "ops/math/register.h"
#include "ops/math/unary_functors.h"
#include "ops/parts/elementwise.cuh"

namespace troupe::TROUPE_GPU_VARIANT {

using namespace unary_functors;

void register_math_unary_gpu(KernelRegistry& kernels) {
  const GpuFloats floats;
  const GpuNumbers numbers;
  add_unary<Neg>(kernels, "Neg", numbers);
  add_unary<Abs>(kernels, "Abs", numbers);
  add_unary<Sign>(kernels, "Sign", numbers);
  add_unary<Square>(kernels, "Square", numbers);
  add_unary<Sqrt>(kernels, "Sqrt", floats);
  add_unary<Rsqrt>(kernels, "Rsqrt", floats);
  for (const char* op : {"Reciprocal", "Inv"}) add_unary<Reciprocal>(kernels, op, floats);
  add_unary<Exp>(kernels, "Exp", floats);
  add_unary<Expm1>(kernels, "Expm1", floats);
  add_unary<Log>(kernels, "Log", floats);
  add_unary<Log1p>(kernels, "Log1p", floats);
  add_unary<Sin>(kernels, "Sin", floats);
  add_unary<Cos>(kernels, "Cos", floats);
  add_unary<Tan>(kernels, "Tan", floats);
  add_unary<Asin>(kernels, "Asin", floats);
  add_unary<Acos>(kernels, "Acos", floats);
  add_unary<Atan>(kernels, "Atan", floats);
  add_unary<Sinh>(kernels, "Sinh", floats);
  add_unary<Cosh>(kernels, "Cosh", floats);
  add_unary<Asinh>(kernels, "Asinh", floats);
  add_unary<Acosh>(kernels, "Acosh", floats);
  add_unary<Atanh>(kernels, "Atanh", floats);
  add_unary<Erf>(kernels, "Erf", floats);
  add_unary<Erfc>(kernels, "Erfc", floats);
  add_unary<Floor>(kernels, "Floor", floats);
  add_unary<Ceil>(kernels, "Ceil", floats);
  add_unary<Rint>(kernels, "Rint", floats);
  add_unary<Round>(kernels, "Round", numbers);
  add_unary<LogicalNot>(kernels, "LogicalNot", TypeList<bool>{});
  add_unary<IsNan>(kernels, "IsNan", floats);
  add_unary<IsInf>(kernels, "IsInf", floats);
  add_unary<IsFinite>(kernels, "IsFinite", floats);
}

}  // namespace troupe::TROUPE_GPU_VARIANT
