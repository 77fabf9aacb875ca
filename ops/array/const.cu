// SPDX-License-Identifier: Apache-2.0
// Tensors whose elements are all the same, or follow one another, on GPUs.
#include "ops/array/fill.h"
#include "ops/array/register.h"
#include "ops/parts/elementwise.cuh"
#include "ops/parts/wrapping.h"

namespace troupe::TROUPE_GPU_VARIANT {
namespace {

/// S: of the element's size.
template <class S> __global__ void fill(S* out, const S* value, int64_t n, bool packed) {
  constexpr int kCount = kPack<S>;
  const S one = *value;
  for_each_pack<kCount>(n, [&](int64_t i, int count) {
    Pack<S, kCount> pack;
    TROUPE_UNROLL
    for (int k = 0; k < kCount; ++k) pack.at[k] = one;
    store_pack(out, pack, i, count, packed);
  });
}
template <class T> __global__ void fill_ones(T* out, int64_t n, bool packed) {
  constexpr int kCount = kPack<T>;
  for_each_pack<kCount>(n, [&](int64_t i, int count) {
    Pack<T, kCount> pack;
    TROUPE_UNROLL
    for (int k = 0; k < kCount; ++k) pack.at[k] = narrow<T>(Arithmetic<T>(1));
    store_pack(out, pack, i, count, packed);
  });
}

template <class T> __global__ void fill_range(T* out, Arithmetic<T> start, Arithmetic<T> delta, int64_t n) {
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads)
    out[i] = narrow<T>(wrapping_add(start, wrapping_multiply(static_cast<Arithmetic<T>>(i), delta)));
}

class GpuFill final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor& value = c.input(1);
    TROUPE_ASSIGN(const Shape shape, filled_shape(c.input(0), value.shape()));
    TROUPE_ASSIGN(Tensor y, c.allocate(value.dtype(), shape));
    Status status;
    if (const int64_t n = y.elements(); n > 0) {
      declare_uses(c, {&y});
      const gpu::Compute& gpu = *c.device().gpu;
      with_storage(value.dtype(), [&]<class S>() {
        if constexpr (std::is_trivially_copyable_v<S>) {
          auto* out = static_cast<S*>(y.mutable_address());
          status = TROUPE_LAUNCH(gpu.stream, fill<S>, pack_blocks<kPack<S>>(gpu, n), kElementThreads, 0, out,
                                 static_cast<const S*>(value.address()), n, holds_packs<S, kPack<S>>(out));
        }
      });
    }
    c.set_output(0, std::move(y));
    return status;
  }
};

class GpuZeros final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(0, x.dtype(), x.shape()));
    declare_uses(c, {&y});
    if (y.elements() > 0) TROUPE_RETURN_IF_ERROR(c.device().gpu->stream.fill(y.mutable_address(), 0, y.bytes()));
    c.set_output(0, std::move(y));
    return {};
  }
};

template <class T> class GpuOnes final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(0, dtype_of<T>, c.input(0).shape()));
    if (const int64_t n = y.elements(); n > 0) {
      declare_uses(c, {&y});
      const gpu::Compute& gpu = *c.device().gpu;
      auto* out = static_cast<T*>(y.mutable_address());
      TROUPE_RETURN_IF_ERROR(TROUPE_LAUNCH(gpu.stream, fill_ones<T>, pack_blocks<kPack<T>>(gpu, n), kElementThreads, 0,
                                           out, n, holds_packs<T, kPack<T>>(out)));
    }
    c.set_output(0, std::move(y));
    return {};
  }
};

template <class T> class GpuRange final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const int64_t n, range_length<T>(c.input(0), c.input(1), c.input(2)));
    TROUPE_ASSIGN(Tensor y, c.allocate(dtype_of<T>, {n}));
    if (n > 0) {
      declare_uses(c, {&y});
      const gpu::Compute& gpu = *c.device().gpu;
      TROUPE_RETURN_IF_ERROR(TROUPE_LAUNCH(gpu.stream, fill_range<T>, gpu::blocks_for(gpu.card, n, kElementThreads),
                                           kElementThreads, 0, static_cast<T*>(y.mutable_address()),
                                           widen(*c.input(0).data<T>()), widen(*c.input(2).data<T>()), n));
    }
    c.set_output(0, std::move(y));
    return {};
  }
};

}  // namespace

void register_const_gpu(KernelRegistry& kernels) {
  register_identities_gpu(kernels);
  register_views_gpu(kernels);
  kernels.add<GpuFill>("Fill", DeviceKind::kCuda, {{"T", gpu_dtypes()}}, {{0}, {}});
  kernels.add<GpuZeros>("ZerosLike", DeviceKind::kCuda, {{"T", gpu_dtypes()}});
  const auto add = [&]<class... T>(TypeList<T...>) {
    (kernels.add("OnesLike", DeviceKind::kCuda, "T", dtype_of<T>, KernelFactory::of<GpuOnes<T>>()), ...);
  };
  add(GpuNumbersAndBool{});
  const auto add_range = [&]<class... T>(TypeList<T...>) {
    (kernels.add<GpuRange<T>>("Range", DeviceKind::kCuda, {{"Tidx", {dtype_of<T>}}}, {{0, 1, 2}, {}}), ...);
  };
  add_range(TypeList<float, double, float16, bfloat16, int64_t>{});
}

}  // namespace troupe::TROUPE_GPU_VARIANT
