// SPDX-License-Identifier: Apache-2.0
// _FusedElementwise on GPUs: the form of a program that a kernel interprets, and the functions there are. What makes it
// is in ops/fused/gpu_elementwise.cpp, the kernel in ops/fused/elementwise.cu. Passed to kernels by value.
#pragma once
#include "ops/fused/fused_program.h"
#include "ops/parts/gpu_elementwise.h"
#include "ops/parts/gpu_index.h"

/// X(name, functor) for each function of one tensor and of two; where several ops are one function, for the first.
#define TROUPE_FUSED_UNARY(X)                               \
  X(Abs, unary_functors::Abs)                               \
  X(Ceil, unary_functors::Ceil)                             \
  X(Cos, unary_functors::Cos)                               \
  X(Elu, activation_functors::Elu)                          \
  X(Erf, unary_functors::Erf)                               \
  X(Exp, unary_functors::Exp)                               \
  X(Expm1, unary_functors::Expm1)                           \
  X(Floor, unary_functors::Floor)                           \
  X(Log, unary_functors::Log)                               \
  X(Log1p, unary_functors::Log1p)                           \
  X(Neg, unary_functors::Neg)                               \
  X(Reciprocal, unary_functors::Reciprocal)                 \
  X(Relu, activation_functors::Relu)                        \
  X(Relu6, activation_functors::Relu6)                      \
  X(Rint, unary_functors::Rint)                             \
  X(Rsqrt, unary_functors::Rsqrt)                           \
  X(Selu, activation_functors::Selu)                        \
  X(Sigmoid, activation_functors::Sigmoid)                  \
  X(Sign, unary_functors::Sign)                             \
  X(Sin, unary_functors::Sin)                               \
  X(Softplus, activation_functors::Softplus)                \
  X(Softsign, activation_functors::Softsign)                \
  X(Sqrt, unary_functors::Sqrt)                             \
  X(Square, unary_functors::Square)                         \
  X(Tanh, activation_functors::Tanh)                        \
  X(_GeluApproximate, activation_functors::GeluApproximate) \
  X(_GeluExact, activation_functors::GeluExact)
#define TROUPE_FUSED_BINARY(X)                             \
  X(Add, binary_functors::Add)                             \
  X(Div, binary_functors::DivideFloats)                    \
  X(EluGrad, activation_functors::EluGrad)                 \
  X(Maximum, binary_functors::Maximum)                     \
  X(Minimum, binary_functors::Minimum)                     \
  X(Mul, binary_functors::Mul)                             \
  X(Pow, binary_functors::PowFloats)                       \
  X(Relu6Grad, activation_functors::Relu6Grad)             \
  X(ReluGrad, activation_functors::ReluGrad)               \
  X(RsqrtGrad, activation_functors::RsqrtGrad)             \
  X(SeluGrad, activation_functors::SeluGrad)               \
  X(SigmoidGrad, activation_functors::SigmoidGrad)         \
  X(SoftplusGrad, activation_functors::SoftplusGrad)       \
  X(SqrtGrad, activation_functors::SqrtGrad)               \
  X(SquaredDifference, binary_functors::SquaredDifference) \
  X(Sub, binary_functors::Sub)                             \
  X(TanhGrad, activation_functors::TanhGrad)

namespace troupe {

enum class GpuFunction : uint8_t {
#define TROUPE_NAME(name, functor) k##name,
  TROUPE_FUSED_UNARY(TROUPE_NAME) TROUPE_FUSED_BINARY(TROUPE_NAME)
#undef TROUPE_NAME
};

/// What a function reads: an input by its number, a value that was kept, by kKept and the number of its slot, or the
/// result of the function before.
struct GpuOperand {
  static constexpr uint8_t kKept = kMostFused, kLast = 255;
};

struct GpuInstruction {
  static constexpr uint8_t kNoSlot = 255;
  GpuFunction function;
  uint8_t a, b = GpuOperand::kLast;  // b of a function of one tensor is not read
  uint8_t slot = kNoSlot;            // where the result is kept for later functions than the next
};

struct GpuProgram {
  int32_t length = 0;
  int32_t slots = 0;
  GpuInstruction code[kMostFused] = {};
};

struct GpuFusedInput {
  const void* at = nullptr;
  Reads reads = Reads::kDense;
  uint16_t dimensions = 0;  // of a strided one: the bit of each dimension along which it is not repeated
};

/// Where the inputs of one call are.
struct GpuFusedInputs {
  /// Those of the result, neighbours merged where all strided inputs are repeated along both or along neither.
  GpuSizes sizes;
  GpuFusedInput at[kMostFused];
};
static_assert(sizeof(GpuProgram) + sizeof(GpuFusedInputs) < 4000, "arguments of a kernel have 4 KiB");

/// Fills `y`, which has elements. The caller has told the stream what is used.
using GpuFusedLaunch = Status (*)(const gpu::Compute& gpu, const GpuProgram& program, const GpuFusedInputs& inputs,
                                  Tensor& y);

namespace on_cuda {
Status launch_fused(const gpu::Compute& gpu, const GpuProgram& program, const GpuFusedInputs& inputs, Tensor& y);
}  // namespace on_cuda
namespace on_fake {
Status launch_fused(const gpu::Compute& gpu, const GpuProgram& program, const GpuFusedInputs& inputs, Tensor& y);
}  // namespace on_fake

}  // namespace troupe
