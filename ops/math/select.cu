// SPDX-License-Identifier: Apache-2.0
// Choice and sums of many tensors on GPUs.
#include "ops/math/register.h"
#include "ops/math/select.h"
#include "ops/parts/elementwise.cuh"
#include "ops/parts/wrapping.h"

namespace troupe::TROUPE_GPU_VARIANT {
namespace {

/// out[i] = condition[..] ? then[..] : other[..], where each may be one element. S: an integer of the element's size.
template <class S>
__global__ void select(S* out, const Operand<bool, kPack<S>> condition, const Operand<S, kPack<S>> then,
                       const Operand<S, kPack<S>> other, int64_t n, bool packed) {
  constexpr int kCount = kPack<S>;
  for_each_pack<kCount>(n, [&](int64_t i, int count) {
    Pack<bool, kCount> chosen;
    Pack<S, kCount> a, b;
    load_operand(chosen, condition, i, count);
    load_operand(a, then, i, count);
    load_operand(b, other, i, count);
    TROUPE_UNROLL
    for (int k = 0; k < kCount; ++k) a.at[k] = chosen.at[k] ? a.at[k] : b.at[k];
    store_pack(out, a, i, count, packed);
  });
}
template <class S>
__global__ void select_broadcast(S* out, const bool* condition, const S* then, const S* other, int64_t n,
                                 const __grid_constant__ GpuBroadcast plan) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) {
    int64_t at[3];
    plan.places(i, at);
    out[i] = condition[at[0]] ? then[at[1]] : other[at[2]];
  }
}

class GpuSelect final : public ComputeKernel {
 public:
  explicit GpuSelect(const KernelInit& init) : legacy_(init.op == "Select") {}
  Status compute(KernelContext& c) override {
    const Tensor &condition = c.input(0), &then = c.input(1), &other = c.input(2);
    TROUPE_ASSIGN(const Broadcast plan, plan_select(condition.shape(), then.shape(), other.shape(), legacy_));
    const int reuse = then.shape() == plan.shape && then.unique() ? 1 : 2;
    TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(reuse, then.dtype(), plan.shape));
    const int64_t n = y.elements();
    Status status;
    if (n > 0) {
      declare_uses(c, {&y});
      with_storage(then.dtype(), [&]<class S>() {
        if constexpr (std::is_trivially_copyable_v<S>) status = launch<S>(c, y, condition, then, other, plan);
      });
    }
    c.set_output(0, std::move(y));
    return status;
  }

 private:
  template <class S>
  static Status launch(KernelContext& c, Tensor& y, const Tensor& condition, const Tensor& then, const Tensor& other,
                       const Broadcast& plan) {
    constexpr int kCount = kPack<S>;
    const gpu::Compute& gpu = *c.device().gpu;
    const int64_t n = y.elements();
    const Reads reads[] = {reads_of(condition, n), reads_of(then, n), reads_of(other, n)};
    auto* out = static_cast<S*>(y.mutable_address());
    if (std::ranges::find(reads, Reads::kStrided) != std::end(reads))
      return TROUPE_LAUNCH(gpu.stream, select_broadcast<S>, gpu::blocks_for(gpu.card, n, kElementThreads),
                           kElementThreads, 0, out, static_cast<const bool*>(condition.address()),
                           static_cast<const S*>(then.address()), static_cast<const S*>(other.address()), n,
                           GpuBroadcast(plan));
    return TROUPE_LAUNCH(gpu.stream, select<S>, pack_blocks<kCount>(gpu, n), kElementThreads, 0, out,
                         Operand<bool, kCount>(condition.address(), reads[0]),
                         Operand<S, kCount>(then.address(), reads[1]), Operand<S, kCount>(other.address(), reads[2]), n,
                         holds_packs<S, kCount>(out));
  }

  const bool legacy_;
};

constexpr int kMostSummands = 128;  // of one launch

template <class T> struct Summands {
  const T* at[kMostSummands];
  int count = 0;
  bool packed = true;
};

/// out[i] = the sum of x[i] of all summands, in their order.
template <class T> __global__ void add_all(T* out, const __grid_constant__ Summands<T> x, int64_t n, bool packed) {
  constexpr int kCount = kPack<T>;
  for_each_pack<kCount>(n, [&](int64_t i, int count) {
    Arithmetic<T> sum[kCount];
    Pack<T, kCount> pack;
    load_pack(pack, x.at[0], i, count, x.packed);
    TROUPE_UNROLL
    for (int k = 0; k < kCount; ++k) sum[k] = widen(pack.at[k]);
    for (int s = 1; s < x.count; ++s) {
      load_pack(pack, x.at[s], i, count, x.packed);
      TROUPE_UNROLL
      for (int k = 0; k < kCount; ++k) sum[k] = wrapping_add(sum[k], widen(pack.at[k]));
    }
    TROUPE_UNROLL
    for (int k = 0; k < kCount; ++k) pack.at[k] = narrow<T>(sum[k]);
    store_pack(out, pack, i, count, packed);
  });
}

template <class T> class GpuAddN final : public ComputeKernel {
 public:
  explicit GpuAddN(const KernelInit& init) : shape_(init.attrs->get_or<PartialShape>("shape", PartialShape())) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(int reuse, check_sum(c, shape_));
    if (c.num_inputs() == 1) {
      c.set_output(0, c.input(0));
      return {};
    }
    // Where one launch is not enough, the later ones read the first sum, so that may not lie over an input of theirs.
    if (reuse >= kMostSummands) reuse = 0;
    TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(reuse, dtype_of<T>, c.input(0).shape()));
    if (y.elements() > 0) {
      declare_uses(c, {&y});
      TROUPE_RETURN_IF_ERROR(launch(c, y));
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  static Status launch(KernelContext& c, Tensor& y) {
    constexpr int kCount = kPack<T>;
    const gpu::Compute& gpu = *c.device().gpu;
    auto* out = static_cast<T*>(y.mutable_address());
    for (int begin = 0; begin < c.num_inputs();) {
      Summands<T> x;
      if (begin > 0) x.at[x.count++] = out;
      while (begin < c.num_inputs() && x.count < kMostSummands) {
        const void* at = c.input(begin++).address();
        x.at[x.count++] = static_cast<const T*>(at);
      }
      for (int i = 0; i < x.count; ++i) x.packed = x.packed && holds_packs<T, kCount>(x.at[i]);
      TROUPE_RETURN_IF_ERROR(TROUPE_LAUNCH(gpu.stream, add_all<T>, pack_blocks<kCount>(gpu, y.elements()),
                                           kElementThreads, 0, out, x, y.elements(), holds_packs<T, kCount>(out)));
    }
    return {};
  }

  const PartialShape shape_;
};

}  // namespace

void register_select_gpu(KernelRegistry& kernels) {
  for (const char* op : {"Select", "SelectV2"}) kernels.add<GpuSelect>(op, DeviceKind::kCuda, {{"T", gpu_dtypes()}});
  const auto add = [&]<class... T>(TypeList<T...>) {
    for (const char* op : {"AddN", "AccumulateNV2"})
      (kernels.add(op, DeviceKind::kCuda, "T", dtype_of<T>, KernelFactory::of<GpuAddN<T>>()), ...);
  };
  add(GpuNumbers{});
}

}  // namespace troupe::TROUPE_GPU_VARIANT
