// SPDX-License-Identifier: Apache-2.0
// Pools over images on GPUs: MaxPool, AvgPool and their gradients. A thread makes neighbouring channels of one place of
// the result, of which it joins what it needs in the order in which CPUs do: gradients are gathered, never scattered.
#include "ops/nn/pool.h"

#include <limits>

#include "ops/nn/register.h"
#include "ops/parts/elementwise.cuh"
#include "ops/parts/wrapping.h"

namespace troupe::TROUPE_GPU_VARIANT {
namespace {

/// Windows [begin, end) that cover place `at`.
struct Covering {
  int64_t begin, end;
  __device__ Covering(const WindowAxis& a, const KnownDivisor& stride, int64_t at) {
    const int64_t first = at + a.lo - a.size + 1, last = stride.divide(at + a.lo) + 1;
    begin = first > 0 ? stride.divide(first + a.stride - 1) : 0;
    end = last < a.out ? last : a.out;
  }
};

/// A pool whose channels are counted in packs. Places of images and pools are numbered by packs.
struct PoolPlan {
  WindowAxis y, x;
  KnownDivisor y_stride, x_stride;
  int64_t packs;     // of the channels of one place
  GpuSizes results;  // [images, height, width, packs] of what threads make: the pool, or with `image` the images

  PoolPlan(const PoolShape& s, int pack, bool image)
      : y(s.y), x(s.x), y_stride(s.y.stride), x_stride(s.x.stride), packs(s.channels / pack) {
    const int64_t sizes[] = {s.images, image ? y.in : y.out, image ? x.in : x.out, packs};
    results = GpuSizes(sizes, 4);
  }
  __device__ int64_t in(int64_t image, int64_t iy, int64_t ix, int64_t k) const {
    return ((image * y.in + iy) * x.in + ix) * packs + k;
  }
  __device__ int64_t out(int64_t image, int64_t oy, int64_t ox, int64_t k) const {
    return ((image * y.out + oy) * x.out + ox) * packs + k;
  }
};

/// Calls f(number of the result, image, y, x, pack) for n results, each by one thread.
template <class F> __device__ inline void for_each_result(const PoolPlan& p, int64_t n, F f) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += int64_t{gridDim.x} * blockDim.x) {
    int64_t image = i;
    const int64_t k = p.results.pop(3, image), x = p.results.pop(2, image), y = p.results.pop(1, image);
    f(i, image, y, x, k);
  }
}

template <class T, int N> __device__ inline void widen_pack(Arithmetic<T> (&to)[N], Pack<T, N> from) {
  TROUPE_UNROLL
  for (int j = 0; j < N; ++j) to[j] = widen(from.at[j]);
}
template <class T, int N> __device__ inline Pack<T, N> narrow_pack(const Arithmetic<T> (&from)[N]) {
  Pack<T, N> to;
  TROUPE_UNROLL
  for (int j = 0; j < N; ++j) to.at[j] = narrow<T>(from[j]);
  return to;
}

template <bool max, class A> __device__ inline A join(A a, A b) {
  if constexpr (max) return b > a ? b : a;
  else return a + b;
}

/// The first place of a window; a NaN is passed over, as TensorFlow does.
template <bool max, class A> __device__ inline A begun(A a) {
  using Limits = std::numeric_limits<A>;
  if constexpr (max) return join<true>(Limits::has_infinity ? -Limits::infinity() : Limits::lowest(), a);
  else return a;
}

template <class T, int N, bool max>
__global__ void pool_windows(Pack<T, N>* out, const Pack<T, N>* in, int64_t n, const __grid_constant__ PoolPlan p) {
  using A = Arithmetic<T>;
  for_each_result(p, n, [&](int64_t i, int64_t image, int64_t oy, int64_t ox, int64_t k) {
    const Covered rows(p.y, oy), columns(p.x, ox);
    A joined[N] = {};
    for (int64_t ix = columns.begin; ix < columns.end; ++ix) {
      A column[N] = {};
      for (int64_t iy = rows.begin; iy < rows.end; ++iy) {
        A here[N];
        widen_pack(here, in[p.in(image, iy, ix, k)]);
        TROUPE_UNROLL
        for (int j = 0; j < N; ++j) column[j] = iy == rows.begin ? begun<max>(here[j]) : join<max>(column[j], here[j]);
      }
      TROUPE_UNROLL
      for (int j = 0; j < N; ++j) joined[j] = ix == columns.begin ? column[j] : join<max>(joined[j], column[j]);
    }
    if constexpr (!max) {
      const auto count = static_cast<A>((rows.end - rows.begin) * (columns.end - columns.begin));
      TROUPE_UNROLL
      for (int j = 0; j < N; ++j) joined[j] /= count;
    }
    out[i] = narrow_pack<T>(joined);
  });
}

/// Of each window the first place of its image that holds the largest value `out`, y * width + x; -1 of a NaN.
template <class T, int N>
__global__ void find_largest(Pack<int32_t, N>* places, const Pack<T, N>* in, const Pack<T, N>* out, int64_t n,
                             const __grid_constant__ PoolPlan p) {
  using A = Arithmetic<T>;
  for_each_result(p, n, [&](int64_t i, int64_t image, int64_t oy, int64_t ox, int64_t k) {
    A largest[N];
    widen_pack(largest, out[i]);
    const Covered rows(p.y, oy), columns(p.x, ox);
    Pack<int32_t, N> found;
    TROUPE_UNROLL
    for (int j = 0; j < N; ++j) found.at[j] = -1;
    // Backwards, so that the first place is the last one taken.
    for (int64_t iy = rows.end - 1; iy >= rows.begin; --iy)
      for (int64_t ix = columns.end - 1; ix >= columns.begin; --ix) {
        A here[N];
        widen_pack(here, in[p.in(image, iy, ix, k)]);
        const auto place = static_cast<int32_t>(iy * p.x.in + ix);
        TROUPE_UNROLL
        for (int j = 0; j < N; ++j) found.at[j] = here[j] == largest[j] ? place : found.at[j];
      }
    places[i] = found;
  });
}

/// The gradient of a window goes to the place that find_largest() found.
template <class T, int N>
__global__ void max_gradients(Pack<T, N>* dx, const Pack<int32_t, N>* places, const Pack<T, N>* grad, int64_t n,
                              const __grid_constant__ PoolPlan p) {
  using A = Arithmetic<T>;
  for_each_result(p, n, [&](int64_t i, int64_t image, int64_t iy, int64_t ix, int64_t k) {
    const Covering rows(p.y, p.y_stride, iy), columns(p.x, p.x_stride, ix);
    const auto here = static_cast<int32_t>(iy * p.x.in + ix);
    A sum[N] = {};
    for (int64_t oy = rows.begin; oy < rows.end; ++oy)
      for (int64_t ox = columns.begin; ox < columns.end; ++ox) {
        const int64_t o = p.out(image, oy, ox, k);
        const Pack<int32_t, N> place = places[o];
        A g[N];
        widen_pack(g, grad[o]);
        TROUPE_UNROLL
        for (int j = 0; j < N; ++j) sum[j] = wrapping_add(sum[j], place.at[j] == here ? g[j] : A(0));
      }
    dx[i] = narrow_pack<T>(sum);
  });
}

/// What `grad`, which is of the image's shape, holds where max_gradients() would take a window's gradient to.
template <class T, int N>
__global__ void pick_largest(Pack<T, N>* picked, const Pack<T, N>* in, const Pack<T, N>* out, const Pack<T, N>* grad,
                             int64_t n, const __grid_constant__ PoolPlan p) {
  using A = Arithmetic<T>;
  for_each_result(p, n, [&](int64_t i, int64_t image, int64_t oy, int64_t ox, int64_t k) {
    A largest[N];
    widen_pack(largest, out[i]);
    const Covered rows(p.y, oy), columns(p.x, ox);
    A found[N] = {};
    // Backwards, so that the first place is the last one taken.
    for (int64_t iy = rows.end - 1; iy >= rows.begin; --iy)
      for (int64_t ix = columns.end - 1; ix >= columns.begin; --ix) {
        const int64_t at = p.in(image, iy, ix, k);
        A here[N], g[N];
        widen_pack(here, in[at]);
        widen_pack(g, grad[at]);
        TROUPE_UNROLL
        for (int j = 0; j < N; ++j) found[j] = here[j] == largest[j] ? g[j] : found[j];
      }
    picked[i] = narrow_pack<T>(found);
  });
}

/// The gradient of a window is shared among its places.
template <class T, int N>
__global__ void average_gradients(Pack<T, N>* dx, const Pack<T, N>* grad, int64_t n,
                                  const __grid_constant__ PoolPlan p) {
  using A = Arithmetic<T>;
  for_each_result(p, n, [&](int64_t i, int64_t image, int64_t iy, int64_t ix, int64_t k) {
    const Covering rows(p.y, p.y_stride, iy), columns(p.x, p.x_stride, ix);
    A sum[N] = {};
    for (int64_t oy = rows.begin; oy < rows.end; ++oy)
      for (int64_t ox = columns.begin; ox < columns.end; ++ox) {
        const Covered window_rows(p.y, oy), window_columns(p.x, ox);
        const A share =
            A(1) / static_cast<A>((window_rows.end - window_rows.begin) * (window_columns.end - window_columns.begin));
        A g[N];
        widen_pack(g, grad[p.out(image, oy, ox, k)]);
        TROUPE_UNROLL
        for (int j = 0; j < N; ++j) sum[j] += g[j] * share;
      }
    dx[i] = narrow_pack<T>(sum);
  });
}

/// Calls f.template operator()<N>() with as many channels at a time as these tensors allow.
template <class T, class F>
Status with_pool_pack(const PoolShape& s, std::initializer_list<const Tensor*> tensors, F f) {
  constexpr int kCount = kPack<T>;
  const bool packed = s.channels % kCount == 0 && std::ranges::all_of(tensors, [](const Tensor* t) {
                        return holds_packs<T, kCount>(t->address());
                      });
  return packed ? f.template operator()<kCount>() : f.template operator()<1>();
}
template <class T, int N> const Pack<T, N>* packs_of(const Tensor& t) {
  return static_cast<const Pack<T, N>*>(t.address());
}
template <class T, int N> Pack<T, N>* packs_to(Tensor& t) { return static_cast<Pack<T, N>*>(t.mutable_address()); }

template <class T, bool max> class GpuPool final : public ComputeKernel {
 public:
  explicit GpuPool(PoolWindow window) : window_(std::move(window)) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const PoolShape s, pool_of(window_, c, x.shape()));
    TROUPE_ASSIGN(Tensor y, c.allocate(dtype_of<T>, s.out));
    if (y.elements() > 0) {
      declare_uses(c, {&y});
      const gpu::Compute& gpu = *c.device().gpu;
      TROUPE_RETURN_IF_ERROR(with_pool_pack<T>(s, {&x, &y}, [&]<int N>() {
        const int64_t n = y.elements() / N;
        return TROUPE_LAUNCH(gpu.stream, (pool_windows<T, N, max>), pack_blocks<1>(gpu, n), kElementThreads, 0,
                             packs_to<T, N>(y), packs_of<T, N>(x), n, PoolPlan(s, N, false));
      }));
    }
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const PoolWindow window_;
};
template <class T> using GpuMaxPool = GpuPool<T, true>;
template <class T> using GpuAvgPool = GpuPool<T, false>;

/// MaxPoolGrad or, with `image`, MaxPoolGradGrad.
template <class T, bool image> class GpuMaxPoolGradient final : public ComputeKernel {
 public:
  explicit GpuMaxPoolGradient(PoolWindow window) : window_(std::move(window)) {}
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &y = c.input(1), &g = c.input(2);
    TROUPE_ASSIGN(const PoolShape s, max_pool_of_gradient(window_, c, image));
    TROUPE_ASSIGN(Tensor out, c.allocate(dtype_of<T>, image ? s.out : x.shape()));
    if (out.elements() > 0) {
      Tensor places;
      if (!image) {
        TROUPE_ASSIGN(places, c.allocate(DType::kInt32, s.out));
      }
      declare_uses(c, {&out, image ? &out : &places});
      const gpu::Compute& gpu = *c.device().gpu;
      TROUPE_RETURN_IF_ERROR(with_pool_pack<T>(s, {&x, &y, &g, &out}, [&]<int N>() -> Status {
        const int64_t n = out.elements() / N;
        const unsigned blocks = pack_blocks<1>(gpu, n);
        Pack<T, N>* const to = packs_to<T, N>(out);
        const Pack<T, N>*const in = packs_of<T, N>(x), *const largest = packs_of<T, N>(y),
                               *const grad = packs_of<T, N>(g);
        const PoolPlan plan(s, N, !image);
        if constexpr (image)
          return TROUPE_LAUNCH(gpu.stream, (pick_largest<T, N>), blocks, kElementThreads, 0, to, in, largest, grad, n,
                               plan);
        const int64_t windows = places.elements() / N;
        if (windows > 0)
          TROUPE_RETURN_IF_ERROR(TROUPE_LAUNCH(gpu.stream, (find_largest<T, N>), pack_blocks<1>(gpu, windows),
                                               kElementThreads, 0, packs_to<int32_t, N>(places), in, largest, windows,
                                               PoolPlan(s, N, false)));
        return TROUPE_LAUNCH(gpu.stream, (max_gradients<T, N>), blocks, kElementThreads, 0, to,
                             packs_of<int32_t, N>(places), grad, n, plan);
      }));
    }
    c.set_output(0, std::move(out));
    return {};
  }

 private:
  const PoolWindow window_;
};
template <class T> using GpuMaxPoolGrad = GpuMaxPoolGradient<T, false>;
template <class T> using GpuMaxPoolGradGrad = GpuMaxPoolGradient<T, true>;

template <class T> class GpuAvgPoolGrad final : public ComputeKernel {
 public:
  explicit GpuAvgPoolGrad(PoolWindow window) : window_(std::move(window)) {}
  Status compute(KernelContext& c) override {
    const Tensor& g = c.input(1);
    Shape in;
    TROUPE_ASSIGN(const PoolShape s, average_pool_of_gradient(window_, c, in));
    TROUPE_ASSIGN(Tensor dx, c.allocate(dtype_of<T>, in));
    if (dx.elements() > 0) {
      declare_uses(c, {&dx});
      const gpu::Compute& gpu = *c.device().gpu;
      TROUPE_RETURN_IF_ERROR(with_pool_pack<T>(s, {&g, &dx}, [&]<int N>() {
        const int64_t n = dx.elements() / N;
        return TROUPE_LAUNCH(gpu.stream, (average_gradients<T, N>), pack_blocks<1>(gpu, n), kElementThreads, 0,
                             packs_to<T, N>(dx), packs_of<T, N>(g), n, PoolPlan(s, N, true));
      }));
    }
    c.set_output(0, std::move(dx));
    return {};
  }

 private:
  const PoolWindow window_;
};

template <class K> Result<std::unique_ptr<ComputeKernel>> make_pool_kernel(const KernelInit& init) {
  TROUPE_ASSIGN(PoolWindow window, PoolWindow::make(init));
  return std::unique_ptr<ComputeKernel>(new K(std::move(window)));
}

template <template <class> class K, class... T>
void add_kernels(KernelRegistry& kernels, const char* op, TypeList<T...>, const KernelRegistry::HostMemory& host = {}) {
  (kernels.add(op, DeviceKind::kCuda, {{"T", {dtype_of<T>}}}, make_pool_kernel<K<T>>, host), ...);
}

}  // namespace

void register_pool_gpu(KernelRegistry& kernels) {
  const GpuNumbers numbers;
  const GpuFloats floats;
  const KernelRegistry::HostMemory window = {{-2, -1}, {}};
  add_kernels<GpuMaxPool>(kernels, "MaxPool", numbers);
  add_kernels<GpuMaxPoolGrad>(kernels, "MaxPoolGrad", numbers);
  add_kernels<GpuMaxPoolGradGrad>(kernels, "MaxPoolGradGrad", numbers);
  add_kernels<GpuMaxPool>(kernels, "MaxPoolV2", numbers, window);
  add_kernels<GpuMaxPoolGrad>(kernels, "MaxPoolGradV2", numbers, window);
  add_kernels<GpuMaxPoolGradGrad>(kernels, "MaxPoolGradGradV2", numbers, window);
  add_kernels<GpuAvgPool>(kernels, "AvgPool", floats);
  add_kernels<GpuAvgPoolGrad>(kernels, "AvgPoolGrad", floats, {{0}, {}});
}

}  // namespace troupe::TROUPE_GPU_VARIANT
