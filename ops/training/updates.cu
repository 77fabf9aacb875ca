// SPDX-License-Identifier: Apache-2.0
// The optimizers' updates on GPUs, by the rules of the CPU's, one element a thread; AssignAddVariableOp and
// AssignSubVariableOp. What surrounds the launches is in ops/training/gpu_updates.h.
#include "ops/training/gpu_rules.cuh"
#include "ops/training/proximal_rules.h"
#include "ops/training/register.h"
#include "ops/training/sign_rules.h"

namespace troupe::TROUPE_GPU_VARIANT {
namespace {

constexpr int kUpdateThreads = 256;

template <class Rule, class T> __global__ void update_elements(GpuUpdate u) {
  Arithmetic<T> s[Rule::kScalars];
  read_scalars<Rule, T>(u, s);
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < u.n; i += step) {
    T value[Rule::kVariables];
    T* at[Rule::kVariables];
    for (int k = 0; k < Rule::kVariables; ++k) {
      value[k] = static_cast<const T*>(u.from[k])[i];
      at[k] = &value[k];
    }
    Rule::run(at, static_cast<const T*>(u.gradient) + i, s, u.flag, 1);
    for (int k = 0; k < Rule::kVariables; ++k) static_cast<T*>(u.to[k])[i] = value[k];
  }
}

template <class Rule, class T> Status launch_update(const gpu::Compute& gpu, const GpuUpdate& update) {
  return TROUPE_LAUNCH(gpu.stream, (update_elements<Rule, T>), gpu::blocks_for(gpu.card, update.n, kUpdateThreads),
                       kUpdateThreads, 0, update);
}

template <class Rule, class... T> void add_rule(KernelRegistry& kernels, const std::string& name, TypeList<T...>) {
  (add_gpu_update(kernels, "ResourceApply" + name, "T",
                  {dtype_of<T>, Rule::kVariables, Rule::kScalars, Rule::kGradient, step_of<Rule>(), Rule::kFlag,
                   launch_update<Rule, T>}),
   ...);
}

/// Integers wrap around.
template <class T, bool kSubtract> __device__ T sum_of(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(kSubtract ? static_cast<U>(a) - static_cast<U>(b) : static_cast<U>(a) + static_cast<U>(b));
  } else {
    return narrow<T>(kSubtract ? widen(a) - widen(b) : widen(a) + widen(b));
  }
}

template <class T, bool kSubtract> __global__ void accumulate_elements(GpuUpdate u) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < u.n; i += step)
    static_cast<T*>(u.to[0])[i] =
        sum_of<T, kSubtract>(static_cast<const T*>(u.from[0])[i], static_cast<const T*>(u.gradient)[i]);
}

template <class T, bool kSubtract> Status launch_accumulate(const gpu::Compute& gpu, const GpuUpdate& update) {
  return TROUPE_LAUNCH(gpu.stream, (accumulate_elements<T, kSubtract>),
                       gpu::blocks_for(gpu.card, update.n, kUpdateThreads), kUpdateThreads, 0, update);
}

template <class... T> void add_accumulate(KernelRegistry& kernels, TypeList<T...>) {
  (add_gpu_update(kernels, "AssignAddVariableOp", "dtype", {dtype_of<T>, 1, 0, 0, -1, {}, launch_accumulate<T, false>}),
   ...);
  (add_gpu_update(kernels, "AssignSubVariableOp", "dtype", {dtype_of<T>, 1, 0, 0, -1, {}, launch_accumulate<T, true>}),
   ...);
}

}  // namespace

void register_updates_gpu(KernelRegistry& kernels) {
  const FloatTypes floats;
  add_rule<GradientDescentRule>(kernels, "GradientDescent", floats);
  add_rule<MomentumRule>(kernels, "Momentum", floats);
  add_rule<KerasMomentumRule>(kernels, "KerasMomentum", floats);
  add_rule<AdamRule>(kernels, "Adam", floats);
  add_rule<AmsGradRule>(kernels, "AdamWithAmsgrad", floats);
  add_rule<AdaMaxRule>(kernels, "AdaMax", floats);
  add_rule<AdagradRule>(kernels, "Adagrad", floats);
  add_rule<AdagradV2Rule>(kernels, "AdagradV2", floats);
  add_rule<AdagradDaRule>(kernels, "AdagradDA", floats);
  add_rule<RmsPropRule>(kernels, "RMSProp", floats);
  add_rule<CenteredRmsPropRule>(kernels, "CenteredRMSProp", floats);
  add_rule<AdadeltaRule>(kernels, "Adadelta", floats);
  add_rule<FtrlRule>(kernels, "Ftrl", floats);
  add_rule<FtrlV2Rule>(kernels, "FtrlV2", floats);
  add_rule<AddSignRule>(kernels, "AddSign", floats);
  add_rule<PowerSignRule>(kernels, "PowerSign", floats);
  add_rule<ProximalGradientDescentRule>(kernels, "ProximalGradientDescent", floats);
  add_rule<ProximalAdagradRule>(kernels, "ProximalAdagrad", floats);
  add_accumulate(kernels, TypeList<float, double, float16, bfloat16, int32_t, int64_t, int8_t, uint8_t, int16_t>{});
}

}  // namespace troupe::TROUPE_GPU_VARIANT
