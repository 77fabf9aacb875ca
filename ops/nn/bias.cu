// SPDX-License-Identifier: Apache-2.0
// BiasAdd and its gradient on GPUs.
#include "ops/nn/bias.h"

#include "ops/nn/gpu_epilogue.h"
#include "ops/nn/register.h"
#include "ops/parts/elementwise.cuh"
#include "ops/parts/reduce.cuh"
#include "ops/parts/reducers.h"
#include "ops/parts/wrapping.h"

namespace troupe::TROUPE_GPU_VARIANT {
namespace {

/// out[i] = x[i] + bias[channel of i]; `sizes` are [outer, channels, inner].
template <class T>
__global__ void add_bias(T* out, const T* x, const T* bias, int64_t n, bool packed,
                         const __grid_constant__ GpuSizes sizes) {
  constexpr int kCount = kPack<T>;
  for_each_pack<kCount>(n, [&](int64_t i, int count) {
    Pack<T, kCount> pack;
    load_pack(pack, x, i, count, packed);
    int64_t row = i;
    int64_t inner = sizes.pop(2, row), channel = sizes.pop(1, row);
    TROUPE_UNROLL
    for (int k = 0; k < kCount; ++k) {
      pack.at[k] = narrow<T>(wrapping_add(widen(pack.at[k]), widen(bias[channel])));
      if (++inner == sizes.size[2]) {
        inner = 0;
        if (++channel == sizes.size[1]) channel = 0;
      }
    }
    store_pack(out, pack, i, count, packed);
  });
}

template <class T> class GpuBiasAdd final : public ComputeKernel {
 public:
  explicit GpuBiasAdd(const KernelInit& init) : first_(bias_channels_first(*init.attrs)) {}
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &bias = c.input(1);
    TROUPE_ASSIGN(const BiasView v, bias_view(x.shape(), first_));
    TROUPE_RETURN_IF_ERROR(check_bias(bias.shape(), v, x.shape()));
    TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(0, dtype_of<T>, x.shape()));
    if (const int64_t n = y.elements(); n > 0) {
      declare_uses(c, {&y});
      constexpr int kCount = kPack<T>;
      const gpu::Compute& gpu = *c.device().gpu;
      auto* out = static_cast<T*>(y.mutable_address());
      const int64_t sizes[] = {v.outer, v.channels, v.inner};
      TROUPE_RETURN_IF_ERROR(
          TROUPE_LAUNCH(gpu.stream, add_bias<T>, pack_blocks<kCount>(gpu, n), kElementThreads, 0, out,
                        static_cast<const T*>(x.address()), static_cast<const T*>(bias.address()), n,
                        holds_packs<T, kCount>(x.address()) && holds_packs<T, kCount>(out), GpuSizes(sizes, 3)));
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool first_;
};

template <class T> class GpuBiasAddGrad final : public ComputeKernel {
 public:
  explicit GpuBiasAddGrad(const KernelInit& init) : first_(bias_channels_first(*init.attrs)) {}
  Status compute(KernelContext& c) override {
    const Tensor& g = c.input(0);
    TROUPE_ASSIGN(const BiasView v, bias_view(g.shape(), first_));
    TROUPE_ASSIGN(Tensor y, c.allocate(dtype_of<T>, {v.channels}));
    const bool reduced[] = {true, false, true};
    TROUPE_RETURN_IF_ERROR((launch_reduction<reducers::Sum<T>, T, T>(
        c, g.address(), y, plan_reduce(Shape{v.outer, v.channels, v.inner}, reduced))));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const bool first_;
};

template <class... T> void add_kernels(KernelRegistry& kernels, TypeList<T...>) {
  (kernels.add("BiasAdd", DeviceKind::kCuda, "T", dtype_of<T>, KernelFactory::of<GpuBiasAdd<T>>()), ...);
  (kernels.add("BiasAddGrad", DeviceKind::kCuda, "T", dtype_of<T>, KernelFactory::of<GpuBiasAddGrad<T>>()), ...);
}

}  // namespace

Status launch_bias_gradient(KernelContext& c, const Tensor& dy, Tensor& sums) {
  Status status;
  with_type(dy.dtype(), GpuFloats{}, [&]<class T>() {
    const bool reduced[] = {true, false};
    status = launch_reduction<reducers::Sum<T>, T, T>(
        c, dy.address(), sums, plan_reduce(Shape{dy.elements() / sums.elements(), sums.elements()}, reduced));
  });
  return status;
}

void register_bias_gpu(KernelRegistry& kernels) { add_kernels(kernels, GpuNumbers{}); }

}  // namespace troupe::TROUPE_GPU_VARIANT
