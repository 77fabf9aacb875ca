// SPDX-License-Identifier: Apache-2.0
// Arithmetic, comparison and logic of two tensors on GPUs. Division of integers and their powers, which fail where
// there is no result, have no kernels here: a GPU has no way to say so.
#include "ops/math/binary_functors.h"
#include "ops/math/register.h"
#include "ops/parts/elementwise.cuh"

namespace troupe::TROUPE_GPU_VARIANT {

using namespace binary_functors;

/// Equal and NotEqual: with incompatible_shape_error false, tensors whose shapes do not broadcast are just not equal.
class GpuEquality final : public ComputeKernel {
 public:
  GpuEquality(GpuBinaryLaunch launch, bool when_incompatible)
      : inner_(launch, DType::kBool, true), when_incompatible_(when_incompatible) {}
  Status compute(KernelContext& c) override {
    if (broadcast(c.input(0).shape(), c.input(1).shape()).ok()) return inner_.compute(c);
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kBool, Shape{}));
    declare_uses(c, {&y});
    TROUPE_RETURN_IF_ERROR(c.device().gpu->stream.fill(y.mutable_address(), when_incompatible_, 1));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  GpuBinaryKernel inner_;
  const bool when_incompatible_;
};

template <class F, class... T> void add_equality(KernelRegistry& kernels, const char* op, TypeList<T...>) {
  const auto add = [&](DType dtype, GpuBinaryLaunch launch) {
    kernels.add(op, DeviceKind::kCuda, "T", dtype,
                [launch](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
                  if (init.attrs->get_or<bool>("incompatible_shape_error", true))
                    return std::unique_ptr<ComputeKernel>(new GpuBinaryKernel(launch, DType::kBool, true));
                  return std::unique_ptr<ComputeKernel>(new GpuEquality(launch, std::is_same_v<F, NotEqual>));
                });
  };
  (add(dtype_of<T>, launch_pairs<OfElements<F, bool>, T, bool>), ...);
}

void register_math_binary_gpu(KernelRegistry& kernels) {
  const GpuNumbers numbers;
  const GpuFloats floats;
  for (const char* op : {"Add", "AddV2"}) add_binary<Add>(kernels, op, numbers);
  add_binary<Sub>(kernels, "Sub", numbers);
  add_binary<Mul>(kernels, "Mul", numbers);
  add_binary<SquaredDifference>(kernels, "SquaredDifference", numbers);
  for (const char* op : {"Div", "RealDiv"}) add_binary<DivideFloats>(kernels, op, floats);
  add_binary<TruncateDivideFloats>(kernels, "TruncateDiv", floats);
  add_binary<FloorDivideFloats>(kernels, "FloorDiv", floats);
  for (const char* op : {"Mod", "TruncateMod"}) add_binary<RestFloats>(kernels, op, floats);
  add_binary<FloorRest>(kernels, "FloorMod", floats);
  add_binary<PowFloats>(kernels, "Pow", floats);
  add_binary<Maximum>(kernels, "Maximum", numbers);
  add_binary<Minimum>(kernels, "Minimum", numbers);
  add_binary<Less>(kernels, "Less", numbers);
  add_binary<LessEqual>(kernels, "LessEqual", numbers);
  add_binary<Greater>(kernels, "Greater", numbers);
  add_binary<GreaterEqual>(kernels, "GreaterEqual", numbers);
  add_equality<Equal>(kernels, "Equal", GpuNumbersAndBool{});
  add_equality<NotEqual>(kernels, "NotEqual", GpuNumbersAndBool{});
  add_binary<LogicalAnd>(kernels, "LogicalAnd", TypeList<bool>{});
  add_binary<LogicalOr>(kernels, "LogicalOr", TypeList<bool>{});
}

}  // namespace troupe::TROUPE_GPU_VARIANT
