// SPDX-License-Identifier: Apache-2.0
// Running sums and products on GPUs: a thread for each column where there are many, which adds up as CPUs do; else a
// row of threads for each, which joins what its threads bring in the order of a tree.
#include "ops/math/scan.h"

#include "gpu/warp.cuh"
#include "ops/math/register.h"
#include "ops/parts/elementwise.cuh"

namespace troupe::TROUPE_GPU_VARIANT {
namespace {

constexpr int kScanThreads = 256;

/// Where the k-th element of a column is; columns are numbered along outer and inner.
__device__ inline int64_t place_in(const ScanBox& box, int64_t column, int64_t k) {
  const int64_t outer = column / box.inner;
  return (outer * box.n + (box.reverse ? box.n - 1 - k : k)) * box.inner + column - outer * box.inner;
}

template <class F, class T> __global__ void scan_columns(T* out, const T* in, ScanBox box) {
  using A = Arithmetic<T>;
  const int64_t columns = box.outer * box.inner, threads = int64_t{gridDim.x} * blockDim.x;
  for (int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; c < columns; c += threads) {
    int64_t at = place_in(box, c, 0);
    const int64_t step = box.reverse ? -box.inner : box.inner;
    A total = F::template nothing<A>();
    for (int64_t k = 0; k < box.n; ++k, at += step) {
      const A joined = F::join(total, widen(in[at]));
      out[at] = narrow<T>(box.exclusive ? total : joined);
      total = joined;
    }
  }
}

/// What a thread has to do with its own value: the join of those before it in its row of threads, and of all.
template <class A> struct Totals { A before, all; };

/// All threads of a row call this.
template <class F, class A> __device__ inline Totals<A> join_before(A value) {
  const A nothing = F::template nothing<A>();
  const int lane = static_cast<int>(threadIdx.x % 32);
  A joined = value;
  TROUPE_UNROLL
  for (int delta = 1; delta < 32; delta *= 2) {
    const A other = __shfl_up_sync(kAllLanes, joined, delta);
    if (lane >= delta) joined = F::join(other, joined);
  }
  const A previous = __shfl_up_sync(kAllLanes, joined, 1);
  Totals<A> totals{lane > 0 ? previous : nothing, __shfl_sync(kAllLanes, joined, 31)};
  if (blockDim.x == 32) return totals;
  TROUPE_SHARED(A, of_warps, [kScanThreads / 32]);
  const int warp = static_cast<int>(threadIdx.x / 32);
  __syncthreads();  // an earlier call may still read
  if (lane == 0) of_warps[warp] = totals.all;
  __syncthreads();
  A before = nothing, all = nothing;
  for (int w = 0; w < kScanThreads / 32; ++w) {
    if (w == warp) before = all;
    all = F::join(all, of_warps[w]);
  }
  return {F::join(before, totals.before), all};
}

template <class F, class T> __global__ void scan_rows(T* out, const T* in, ScanBox box) {
  using A = Arithmetic<T>;
  for_each_row(box.outer * box.inner, [&](int64_t r) {
    A total = F::template nothing<A>();
    for (int64_t begin = 0; begin < box.n; begin += blockDim.x) {
      const int64_t k = begin + threadIdx.x, at = place_in(box, r, k);
      const A value = k < box.n ? widen(in[at]) : F::template nothing<A>();
      const Totals<A> totals = join_before<F>(value);
      const A before = F::join(total, totals.before);
      if (k < box.n) out[at] = narrow<T>(box.exclusive ? before : F::join(before, value));
      total = F::join(total, totals.all);
    }
  });
}

template <class F, class T> class GpuScan final : public ComputeKernel {
 public:
  explicit GpuScan(const KernelInit& init) : attrs_(*init.attrs) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const ScanBox box, plan_scan(x.shape(), c.input(1), attrs_));
    TROUPE_ASSIGN(Tensor y, c.allocate(dtype_of<T>, x.shape()));
    Status status;
    if (x.elements() > 0) {
      declare_uses(c, {&y});
      const gpu::Card& card = c.device().gpu->card;
      gpu::Stream& stream = c.device().gpu->stream;
      auto* const out = static_cast<T*>(y.mutable_address());
      const auto* const in = static_cast<const T*>(x.address());
      const int64_t columns = box.outer * box.inner;
      if (box.n <= 32 || columns >= int64_t{std::max(card.multiprocessors, 1)} * kScanThreads)
        status = TROUPE_LAUNCH(stream, (scan_columns<F, T>), gpu::blocks_for(card, columns, kScanThreads), kScanThreads,
                               0, out, in, box);
      else
        status = TROUPE_LAUNCH(stream, (scan_rows<F, T>), row_blocks(card, columns, box.n), row_threads(box.n), 0, out,
                               in, box);
    }
    c.set_output(0, std::move(y));
    return status;
  }

 private:
  const Attrs attrs_;
};

}  // namespace

void register_scan_gpu(KernelRegistry& kernels) {
  const auto add = [&]<class... T>(TypeList<T...>) {
    (kernels.add<GpuScan<ScanSum, T>>("Cumsum", DeviceKind::kCuda, {{"T", {dtype_of<T>}}}, {{1}, {}}), ...);
    (kernels.add<GpuScan<ScanProduct, T>>("Cumprod", DeviceKind::kCuda, {{"T", {dtype_of<T>}}}, {{1}, {}}), ...);
  };
  add(GpuNumbers{});
}

}  // namespace troupe::TROUPE_GPU_VARIANT
