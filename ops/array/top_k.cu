// SPDX-License-Identifier: Apache-2.0
// Classes and ranks on GPUs: OneHot, a thread for each element; TopK, TopKV2, InTopK, InTopKV2, a row of threads for
// each row.
#include "ops/array/top_k.h"

#include <limits>

#include "gpu/warp.cuh"
#include "ops/array/register.h"
#include "ops/parts/elementwise.cuh"

namespace troupe::TROUPE_GPU_VARIANT {
namespace {

/// `sizes`: outer, depth, inner. S: an integer of the element's size.
template <class S, class I>
__global__ void one_hot(S* out, const I* indices, const S* on, const S* off, int64_t n,
                        const __grid_constant__ GpuSizes sizes) {
  const S yes = *on, no = *off;
  const int64_t threads = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += threads) {
    int64_t outer = i;
    const int64_t inner = sizes.pop(2, outer), place = sizes.pop(1, outer);
    out[i] = static_cast<int64_t>(indices[outer * sizes.size[2] + inner]) == place ? yes : no;
  }
}

class GpuOneHot final : public ComputeKernel {
 public:
  explicit GpuOneHot(const KernelInit& init) : axis_(init.attr<int64_t>("axis")) {}
  Status compute(KernelContext& c) override {
    const Tensor &indices = c.input(0), &on = c.input(2), &off = c.input(3);
    TROUPE_ASSIGN(const OneHotPlan plan, plan_one_hot(indices.shape(), c.input(1), on.shape(), off.shape(), axis_));
    TROUPE_ASSIGN(Tensor y, c.allocate(on.dtype(), plan.shape));
    Status status;
    if (const int64_t n = y.elements(); n > 0) {
      declare_uses(c, {&y});
      const gpu::Compute& gpu = *c.device().gpu;
      const int64_t sizes[] = {n / plan.depth / plan.inner, plan.depth, plan.inner};
      with_type(indices.dtype(), TypeList<uint8_t, int8_t, int32_t, int64_t>{}, [&]<class I>() {
        with_storage(on.dtype(), [&]<class S>() {
          if constexpr (std::is_trivially_copyable_v<S>)
            status = TROUPE_LAUNCH(gpu.stream, (one_hot<S, I>), gpu::blocks_for(gpu.card, n, kElementThreads),
                                   kElementThreads, 0, static_cast<S*>(y.mutable_address()),
                                   static_cast<const I*>(indices.address()), static_cast<const S*>(on.address()),
                                   static_cast<const S*>(off.address()), n, GpuSizes(sizes, 3));
        });
      });
    }
    c.set_output(0, std::move(y));
    return status;
  }

 private:
  const int64_t axis_;
};

/// An element of a row and its place there; -1: none.
template <class A> struct Ranked {
  A key;
  int64_t place;
};
template <class A> __device__ inline Ranked<A> shuffle_down(Ranked<A> a, int delta) {
  return {__shfl_down_sync(kAllLanes, a.key, delta), __shfl_down_sync(kAllLanes, a.place, delta)};
}
template <class A> __device__ inline Ranked<A> of_first_lane(Ranked<A> a) {
  return {__shfl_sync(kAllLanes, a.key, 0), __shfl_sync(kAllLanes, a.place, 0)};
}

/// The order of CPUs: the larger first, NaN last, of equals the one before the other.
template <class A> __device__ inline bool goes_before(Ranked<A> a, Ranked<A> b) {
  const bool a_number = a.key == a.key, b_number = b.key == b.key;
  if (a_number != b_number) return a_number;
  if (a_number && a.key != b.key) return a.key > b.key;
  return a.place < b.place;
}

/// The k first of each row of n elements, one after the other: each time all of the row is read, for the first that
/// goes behind the one before. So it takes time with k * n, which is little where k is.
template <class T, class I>
__global__ void top_rows(T* values, I* indices, const T* in, int64_t rows, int64_t n, int64_t k) {
  using A = Arithmetic<T>;
  const Ranked<A> none{A(0), -1};
  const auto first = [](Ranked<A> a, Ranked<A> b) {
    if (a.place < 0) return b;
    return b.place < 0 || goes_before(a, b) ? a : b;
  };
  for_each_row(rows, [&](int64_t r) {
    const T* const x = in + r * n;
    Ranked<A> last = none;
    for (int64_t j = 0; j < k; ++j) {
      Ranked<A> next = none;
      for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const Ranked<A> element{widen(x[i]), i};
        if (last.place < 0 || goes_before(last, element)) next = first(next, element);
      }
      last = reduce_row(next, none, first);
      if (threadIdx.x == 0) {
        values[r * k + j] = x[last.place];
        indices[r * k + j] = static_cast<I>(last.place);
      }
    }
  });
}

template <class T> class GpuTopK final : public ComputeKernel {
 public:
  explicit GpuTopK(const KernelInit& init)
      : k_attr_(init.attrs->get_or<int64_t>("k", 0)), index_(init.output_dtypes[1]) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const int64_t k, rank_asked(c, k_attr_, 1));
    TROUPE_ASSIGN(const Shape shape, top_shape(x.shape(), k));
    TROUPE_ASSIGN(Tensor values, c.allocate(x.dtype(), shape));
    TROUPE_ASSIGN(Tensor indices, c.allocate(index_, shape));
    Status status;
    if (values.elements() > 0) {
      declare_uses(c, {&values, &indices});
      const gpu::Compute& gpu = *c.device().gpu;
      const int64_t n = x.dim(-1), rows = x.elements() / n;
      with_type(index_, IndexTypes{}, [&]<class I>() {
        status = TROUPE_LAUNCH(gpu.stream, (top_rows<T, I>), row_blocks(gpu.card, rows, n), row_threads(n), 0,
                               static_cast<T*>(values.mutable_address()), static_cast<I*>(indices.mutable_address()),
                               static_cast<const T*>(x.address()), rows, n, k);
      });
    }
    c.set_output(0, std::move(values));
    c.set_output(1, std::move(indices));
    return status;
  }

 private:
  const int64_t k_attr_;
  const DType index_;
};

/// Whether fewer than k of a row are larger than the target's; not where one is infinite or NaN, or the target is none.
template <class I>
__global__ void in_top_rows(bool* out, const float* predictions, const I* targets, int64_t rows, int64_t n, int64_t k) {
  constexpr int64_t kNever = int64_t{1} << 33;  // as many as k can be
  const auto finite = [](float x) { return std::abs(x) <= std::numeric_limits<float>::max(); };
  k = k < kNever ? k : kNever;
  for_each_row(rows, [&](int64_t r) {
    const float* const x = predictions + r * n;
    const int64_t target = targets[r];
    const bool known = target >= 0 && target < n && finite(x[target]);
    const float wanted = known ? x[target] : 0;
    int64_t better = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) better += finite(x[i]) ? x[i] > wanted : kNever;
    better = reduce_row(better, int64_t{0}, [](int64_t a, int64_t b) { return a + b; });
    if (threadIdx.x == 0) out[r] = known && better < k;
  });
}

template <class I> class GpuInTopK final : public ComputeKernel {
 public:
  explicit GpuInTopK(const KernelInit& init) : k_attr_(init.attrs->get_or<int64_t>("k", 0)) {}
  Status compute(KernelContext& c) override {
    const Tensor &predictions = c.input(0), &targets = c.input(1);
    TROUPE_ASSIGN(const int64_t k, rank_asked(c, k_attr_, 2));
    TROUPE_RETURN_IF_ERROR(check_in_top(predictions.shape(), targets.shape()));
    const int64_t rows = predictions.dim(0), n = predictions.dim(1);
    TROUPE_ASSIGN(Tensor y, c.allocate(DType::kBool, {rows}));
    if (rows > 0) {
      declare_uses(c, {&y});
      const gpu::Compute& gpu = *c.device().gpu;
      TROUPE_RETURN_IF_ERROR(TROUPE_LAUNCH(gpu.stream, in_top_rows<I>, row_blocks(gpu.card, rows, n), row_threads(n), 0,
                                           static_cast<bool*>(y.mutable_address()),
                                           static_cast<const float*>(predictions.address()),
                                           static_cast<const I*>(targets.address()), rows, n, k));
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const int64_t k_attr_;
};

}  // namespace

void register_top_k_gpu(KernelRegistry& kernels) {
  kernels.add<GpuOneHot>("OneHot", DeviceKind::kCuda, {{"T", gpu_dtypes()}}, {{1}, {}});
  const auto add_top = [&]<class... T>(TypeList<T...>) {
    (kernels.add<GpuTopK<T>>("TopK", DeviceKind::kCuda, {{"T", {dtype_of<T>}}}), ...);
    const std::vector<DType> indices = IndexTypes::dtypes();
    (kernels.add<GpuTopK<T>>("TopKV2", DeviceKind::kCuda, {{"T", {dtype_of<T>}}, {"index_type", indices}}, {{1}, {}}),
     ...);
  };
  add_top(GpuNumbers{});
  const auto add_in_top = [&]<class... I>(TypeList<I...>) {
    (kernels.add<GpuInTopK<I>>("InTopK", DeviceKind::kCuda, {{"T", {dtype_of<I>}}}), ...);
    (kernels.add<GpuInTopK<I>>("InTopKV2", DeviceKind::kCuda, {{"T", {dtype_of<I>}}}, {{2}, {}}), ...);
  };
  add_in_top(IndexTypes{});
}

}  // namespace troupe::TROUPE_GPU_VARIANT
