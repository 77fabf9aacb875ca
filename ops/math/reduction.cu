// SPDX-License-Identifier: Apache-2.0
// Reductions on GPUs: Sum, Mean, Prod, Max, Min, All, Any, EuclideanNorm, L2Loss, ArgMax, ArgMin.
#include <type_traits>

#include "ops/math/register.h"
#include "ops/parts/reduce.cuh"
#include "ops/parts/reducers.h"
#include "ops/parts/type_dispatch.h"

namespace troupe::TROUPE_GPU_VARIANT {
namespace {

/// An element and its place; -1: none yet.
template <class A> struct Placed {
  A value;
  int64_t place;
};
template <class A> __device__ inline Placed<A> shuffle_down(Placed<A> a, int delta) {
  return {__shfl_down_sync(kAllLanes, a.value, delta), __shfl_down_sync(kAllLanes, a.place, delta)};
}

/// The first of the largest (or smallest) elements. A NaN counts as nothing: as the infinity that any element beats.
template <class T, bool max, class I> struct Extreme {
  using A = Arithmetic<T>;
  using Accumulator = Placed<A>;
  static __device__ Accumulator nothing() { return {A(0), -1}; }
  static __device__ Accumulator take(Accumulator a, T x, int64_t k) {
    using Join = std::conditional_t<max, reducers::Largest<A>, reducers::Smallest<A>>;
    const A value = widen(x);
    return merge(a, {value != value ? Join::nothing() : value, k});
  }
  static __device__ Accumulator merge(Accumulator a, Accumulator b) {
    if (b.place < 0) return a;
    if (a.place < 0) return b;
    const bool better = max ? b.value > a.value : b.value < a.value;
    return better || (b.value == a.value && b.place < a.place) ? b : a;
  }
  static __device__ I finish(Accumulator a, int64_t) { return static_cast<I>(a.place); }
};

using ReduceLaunch = Status (*)(KernelContext&, const void* x, Tensor& y, const ReducePlan&);

class GpuReduce final : public ComputeKernel {
 public:
  GpuReduce(ReduceLaunch launch, bool keep_dims, bool all) : launch_(launch), keep_dims_(keep_dims), all_(all) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    std::array<bool, kMaxRank> reduced;
    reduced.fill(true);
    if (!all_) {
      TROUPE_ASSIGN(reduced, reduced_axes(c.input(1), x.rank()));
    }
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), reduced_shape(x.shape(), reduced, keep_dims_)));
    TROUPE_RETURN_IF_ERROR(launch_(c, x.address(), y, plan_reduce(x.shape(), reduced)));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const ReduceLaunch launch_;
  const bool keep_dims_, all_;
};

class GpuArg final : public ComputeKernel {
 public:
  GpuArg(ReduceLaunch launch, DType out) : launch_(launch), out_(out) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const auto axes, arg_axes(x.shape(), c.input(1)));
    TROUPE_ASSIGN(Tensor y, c.allocate(out_, reduced_shape(x.shape(), axes, false)));
    TROUPE_RETURN_IF_ERROR(launch_(c, x.address(), y, plan_reduce(x.shape(), axes)));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const ReduceLaunch launch_;
  const DType out_;
};

template <template <class> class R, class... T>
void add_reduction(KernelRegistry& kernels, const char* op, TypeList<T...>, bool all = false) {
  const auto add = [&](DType dtype, ReduceLaunch launch) {
    kernels.add(
        op, DeviceKind::kCuda, {{"T", {dtype}}},
        [=](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
          const bool keep = init.attrs->get_or<bool>("keep_dims", false);
          return std::unique_ptr<ComputeKernel>(new GpuReduce(launch, keep, all));
        },
        all ? KernelRegistry::HostMemory() : KernelRegistry::HostMemory{{1}, {}});
  };
  (add(dtype_of<T>, launch_reduction<R<T>, T, T>), ...);
}

template <bool max, class... T> void add_arg(KernelRegistry& kernels, const char* op, TypeList<T...>) {
  const auto add = [&](DType dtype, DType out, ReduceLaunch launch) {
    kernels.add(op, DeviceKind::kCuda, {{"T", {dtype}}, {"output_type", {out}}},
                [=](const KernelInit&) -> Result<std::unique_ptr<ComputeKernel>> {
                  return std::unique_ptr<ComputeKernel>(new GpuArg(launch, out));
                },
                {{1}, {}});
  };
  (add(dtype_of<T>, DType::kInt64, launch_reduction<Extreme<T, max, int64_t>, T, int64_t>), ...);
  (add(dtype_of<T>, DType::kInt32, launch_reduction<Extreme<T, max, int32_t>, T, int32_t>), ...);
}

}  // namespace

void register_reduction_gpu(KernelRegistry& kernels) {
  using Numbers = TypeList<float, double, float16, bfloat16, int32_t, int64_t>;
  const Numbers numbers;
  const FloatTypes floats;
  add_reduction<reducers::Sum>(kernels, "Sum", numbers);
  add_reduction<reducers::Mean>(kernels, "Mean", numbers);
  add_reduction<reducers::Prod>(kernels, "Prod", numbers);
  add_reduction<reducers::Max>(kernels, "Max", numbers);
  add_reduction<reducers::Min>(kernels, "Min", numbers);
  add_reduction<reducers::EuclideanNorm>(kernels, "EuclideanNorm", floats);
  add_reduction<reducers::HalfSquares>(kernels, "L2Loss", floats, true);
  add_reduction<reducers::All>(kernels, "All", TypeList<bool>{});
  add_reduction<reducers::Any>(kernels, "Any", TypeList<bool>{});
  add_arg<true>(kernels, "ArgMax", numbers);
  add_arg<false>(kernels, "ArgMin", numbers);
}

}  // namespace troupe::TROUPE_GPU_VARIANT
