// SPDX-License-Identifier: Apache-2.0
// Batch normalisation on GPUs. A channel's statistics are reduced in one pass over the images, a thread prepares the
// coefficients of each channel, and a second pass applies them, with the Relu behind the norm where that is asked for:
// training then keeps a bit for each element, so that the gradient need not read the result. Infinities make a
// channel's statistics NaN.
#include "ops/nn/batch_norm.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/nn/activation_functors.h"
#include "ops/nn/register.h"
#include "ops/parts/elementwise.cuh"
#include "ops/parts/reduce.cuh"

namespace troupe::TROUPE_GPU_VARIANT {
namespace {

/// n numbers: sums of their distances from one of them, or from their mean, and of these distances' squares. Unlike
/// sums of the numbers themselves they stay exact where a mean is large beside the deviation.
template <class A> struct Moments {
  int64_t n;
  A shift, sum, squares;
};
template <class A> __device__ inline Moments<A> shuffle_down(Moments<A> m, int delta) {
  return {__shfl_down_sync(kAllLanes, m.n, delta), __shfl_down_sync(kAllLanes, m.shift, delta),
          __shfl_down_sync(kAllLanes, m.sum, delta), __shfl_down_sync(kAllLanes, m.squares, delta)};
}

template <class A> struct MeanAndVariance { A mean, variance; };

/// Mean and variance; both 0 of nothing. Parts are joined as in Chan, Golub and LeVeque, "Updating formulae and a
/// pairwise algorithm for computing sample variances", 1979.
template <class T> struct Statistics {
  using A = Arithmetic<T>;
  using Accumulator = Moments<A>;
  static __device__ Accumulator nothing() { return {0, A(0), A(0), A(0)}; }
  static __device__ Accumulator take(Accumulator a, T x) {
    if (a.n == 0) a.shift = widen(x);
    const A d = widen(x) - a.shift;
    ++a.n;
    a.sum += d;
    a.squares += d * d;
    return a;
  }
  static __device__ Accumulator merge(Accumulator a, Accumulator b) {
    if (b.n == 0) return a;
    if (a.n == 0) return b;
    const A of_a = static_cast<A>(a.n), of_b = static_cast<A>(b.n), n = of_a + of_b;
    const A a_mean = a.sum / of_a, b_mean = b.sum / of_b, apart = (b.shift - a.shift) + (b_mean - a_mean);
    return {a.n + b.n, a.shift + (a_mean + apart * of_b / n), A(0),
            spread(a, a_mean) + spread(b, b_mean) + apart * apart * of_a * of_b / n};
  }
  static __device__ MeanAndVariance<A> finish(Accumulator a, int64_t) {
    if (a.n == 0) return {A(0), A(0)};
    const A mean = a.sum / static_cast<A>(a.n);
    return {a.shift + mean, spread(a, mean) / static_cast<A>(a.n)};
  }

 private:
  /// The sum of the squares of distances from the mean, which is `mean` from the shift.
  static __device__ A spread(const Accumulator& a, A mean) {
    const A s = a.squares - a.sum * mean;
    return s < A(0) ? A(0) : s;
  }
};

/// Sums over a channel of the gradient g, and of g times the distance of x from the mean.
template <class A> struct GradientSums { A sum, product; };
template <class A> __device__ inline GradientSums<A> shuffle_down(GradientSums<A> s, int delta) {
  return {__shfl_down_sync(kAllLanes, s.sum, delta), __shfl_down_sync(kAllLanes, s.product, delta)};
}
template <class A> struct GradientAt { A g, distance; };
template <class A> struct SumGradients {
  using Accumulator = GradientSums<A>;
  static __device__ Accumulator nothing() { return {A(0), A(0)}; }
  static __device__ Accumulator take(Accumulator a, GradientAt<A> x) {
    return {a.sum + x.g, a.product + x.g * x.distance};
  }
  static __device__ Accumulator merge(Accumulator a, Accumulator b) { return {a.sum + b.sum, a.product + b.product}; }
  static __device__ Accumulator finish(Accumulator a, int64_t) { return a; }
};
/// Neighbouring elements that a thread does at a time, and whose bits are a byte.
template <class T> inline constexpr int kNormPack = static_cast<int>(relu_group(sizeof(T)));

/// Whether Relu is on for element i; `bits` may be null: there is none.
template <class T> __device__ inline bool is_on(const unsigned char* bits, int64_t i) {
  return !bits || (bits[i / kNormPack<T>] >> static_cast<int>(i % kNormPack<T>) & 1) != 0;
}

template <class T> struct GradientsOfChannels {
  using A = Arithmetic<T>;
  const T *g, *x;
  const A* means;
  const unsigned char* bits;
  struct OfChannel {
    const T *g, *x;
    A mean;
    const unsigned char* bits;
    int64_t first;
    __device__ GradientAt<A> operator[](int64_t i) const {
      i += first;
      return {is_on<T>(bits, i) ? widen(g[i]) : A(0), widen(x[i]) - mean};
    }
  };
  __device__ OfChannel of(int64_t channel, int64_t first) const { return {g, x, means[channel], bits, first}; }
};

/// What becomes of x in a channel: (x - m) * q + b, with g * p added in gradients.
template <class A> struct alignas(16) Coefficients { A m, p, q, b; };

/// The gradient by x. Where q is 0, as in inference, x has no part in it, be it infinite.
template <class A> __device__ A gradient_by_x(const Coefficients<A>& c, A x, A g) {
  return (c.q == A(0) ? A(0) : (x - c.m) * c.q) + c.b + g * c.p;
}

/// The inputs and outputs of FusedBatchNormV3 that have a number for each channel. Outputs are set from `computed`
/// statistics alone; without, mean and variance are those given.
template <class A> struct ChannelVectors {
  const MeanAndVariance<A>* computed;
  const A *scale, *offset, *mean, *variance;
  A *batch_mean, *batch_variance, *reserve_mean, *reserve_variance;
};

template <class A>
__global__ void prepare_channels(Coefficients<A>* out, ChannelVectors<A> v, int64_t channels, int64_t count, bool empty,
                                 bool training, bool blends, float epsilon, float factor) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < channels; i += step) {
    const MeanAndVariance<A> s = v.computed ? v.computed[i] : MeanAndVariance<A>{v.mean[i], v.variance[i]};
    out[i] = {s.mean, A(0), v.scale[i] / std::sqrt(s.variance + static_cast<A>(epsilon)), v.offset[i]};
    if (!v.computed) continue;
    v.reserve_mean[i] = s.mean;
    v.reserve_variance[i] = s.variance;
    A mean = s.mean, variance = s.variance;
    if (training) variance *= static_cast<A>(count) / static_cast<A>(count > 1 ? count - 1 : 1);
    if (blends) {
      const A old = static_cast<A>(1 - factor), part = static_cast<A>(factor);
      mean = old * v.mean[i] + part * mean;
      variance = old * v.variance[i] + part * variance;
    }
    const A nan = std::numeric_limits<A>::quiet_NaN();
    v.batch_mean[i] = empty ? nan : mean;
    v.batch_variance[i] = empty ? nan : variance;
  }
}

/// The same of gradients, with those by scale and offset.
template <class A>
__global__ void prepare_gradients(Coefficients<A>* out, A* by_scale, A* by_offset, const GradientSums<A>* sums,
                                  const A* scale, const A* mean, const A* variance, int64_t channels, int64_t count,
                                  bool training, float epsilon) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < channels; i += step) {
    const GradientSums<A> s = sums[i];
    const A inverse = A(1) / std::sqrt(variance[i] + static_cast<A>(epsilon)),
            n = static_cast<A>(count > 0 ? count : 1);
    by_scale[i] = s.product * inverse;
    by_offset[i] = s.sum;
    const A p = scale[i] * inverse;
    out[i] = {mean[i], p, training ? -p * inverse * inverse * (s.product / n) : A(0),
              training ? -p * (s.sum / n) : A(0)};
  }
}

// -- Images whose channels lie side by side ---------------------------------------------------------------------------
// A thread stays with a pack of channels, whose coefficients it keeps, and walks rows of channels. Blocks are columns x
// rows of threads, blockIdx.x counts columns of blocks and blockIdx.y parts of the rows.

inline constexpr int kNormThreads = 128;
inline constexpr int kRowsAtOnce = 4;  // loads that a thread has under way
// Of each multiprocessor: as many as run at a time where each joins its threads' sums at its end, else more.
inline constexpr int kBlocksThatSum = 6, kBlocksThatApply = 12;

/// How images [rows, channels] are shared among threads.
struct ChannelsLast {
  int64_t rows, packs;  // packs of channels
  dim3 blocks, threads;
  int parts;  // of the rows

  /// `blocks_each`: blocks wanted for each multiprocessor.
  ChannelsLast(const gpu::Card& card, int64_t r, int64_t p, int blocks_each) : rows(r), packs(p) {
    const auto columns = static_cast<unsigned>(std::min<int64_t>(packs, 32));
    threads = dim3(columns, kNormThreads / columns);
    const int64_t across = (packs + columns - 1) / columns;
    // By the card and the sizes alone, so that sums do not change from step to step.
    const int64_t wanted = int64_t{std::max(card.multiprocessors, 1)} * blocks_each / across;
    const int64_t most = rows / (int64_t{threads.y} * kRowsAtOnce * 2);
    parts = static_cast<int>(std::clamp<int64_t>(std::min(wanted, most), 1, 65535));
    blocks = dim3(static_cast<unsigned>(across), static_cast<unsigned>(parts));
  }
};

/// Calls load(at, row slot) for up to kRowsAtOnce packs of a thread's channels and then use(at, row slot) for each,
/// until its part of the rows is done; `at` is the number of the pack.
template <class Load, class Use>
__device__ inline void walk_rows(int64_t rows, int64_t packs, int64_t pack, Load load, Use use) {
  const int64_t begin = rows * blockIdx.y / gridDim.y, end = rows * (blockIdx.y + 1) / gridDim.y;
  for (int64_t r = begin + threadIdx.y; r < end; r += int64_t{blockDim.y} * kRowsAtOnce) {
    TROUPE_UNROLL
    for (int k = 0; k < kRowsAtOnce; ++k)
      if (const int64_t row = r + int64_t{blockDim.y} * k; row < end) load(row * packs + pack, k);
    TROUPE_UNROLL
    for (int k = 0; k < kRowsAtOnce; ++k)
      if (const int64_t row = r + int64_t{blockDim.y} * k; row < end) use(row * packs + pack, k);
  }
}

/// What a thread has of each of its channels.
template <class A, int N> struct MomentsOfPack {
  int64_t n = 0;
  A shift[N] = {}, sum[N] = {}, squares[N] = {};
  template <class T> __device__ void take(const Pack<T, N>& x) {
    TROUPE_UNROLL
    for (int j = 0; j < N; ++j) {
      if (n == 0) shift[j] = widen(x.at[j]);
      const A d = widen(x.at[j]) - shift[j];
      sum[j] += d;
      squares[j] += d * d;
    }
    ++n;
  }
  __device__ Moments<A> of(int j) const { return {n, shift[j], sum[j], squares[j]}; }
};
template <class A, int N> struct GradientsOfPack {
  A sum[N] = {}, product[N] = {};
  template <class T> __device__ void take(const Pack<T, N>& g, const Pack<T, N>& x, unsigned on, const A (&mean)[N]) {
    TROUPE_UNROLL
    for (int j = 0; j < N; ++j) {
      const A v = (on >> j & 1) != 0 ? widen(g.at[j]) : A(0);
      sum[j] += v;
      product[j] += v * (widen(x.at[j]) - mean[j]);
    }
  }
  __device__ GradientSums<A> of(int j) const { return {sum[j], product[j]}; }
};

/// Joins the accumulators of a block's rows of threads, channel by channel, into partial[channel * parts + part].
template <class R, int N, class Taken>
__device__ inline void join_rows(typename R::Accumulator* partial, const Taken& taken, int64_t pack, int64_t packs) {
  using A = typename R::Accumulator;
  TROUPE_SHARED(A, of_threads, [kNormThreads]);
  const unsigned rows = blockDim.y, me = threadIdx.y * blockDim.x + threadIdx.x;
  for (int j = 0; j < N; ++j) {
    of_threads[me] = taken.of(j);
    __syncthreads();
    for (unsigned apart = 1; apart < rows; apart *= 2) {
      if (threadIdx.y % (apart * 2) == 0 && threadIdx.y + apart < rows)
        of_threads[me] = R::merge(of_threads[me], of_threads[me + apart * blockDim.x]);
      __syncthreads();
    }
    if (threadIdx.y == 0 && pack < packs) partial[(pack * N + j) * gridDim.y + blockIdx.y] = of_threads[me];
    __syncthreads();
  }
}

template <class T>
__global__ void sum_moments(Moments<Arithmetic<T>>* partial, const Pack<T, kNormPack<T>>* x, int64_t rows,
                            int64_t packs) {
  using A = Arithmetic<T>;
  constexpr int N = kNormPack<T>;
  const int64_t pack = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  MomentsOfPack<A, N> taken;
  Pack<T, N> of_x[kRowsAtOnce];
  if (pack < packs)
    walk_rows(
        rows, packs, pack, [&](int64_t at, int k) { of_x[k] = x[at]; }, [&](int64_t, int k) { taken.take(of_x[k]); });
  join_rows<Statistics<T>, N>(partial, taken, pack, packs);
}

template <class T>
__global__ void sum_gradients(GradientSums<Arithmetic<T>>* partial, const Pack<T, kNormPack<T>>* g,
                              const Pack<T, kNormPack<T>>* x, const unsigned char* bits, const Arithmetic<T>* means,
                              int64_t rows, int64_t packs) {
  using A = Arithmetic<T>;
  constexpr int N = kNormPack<T>;
  const int64_t pack = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  GradientsOfPack<A, N> taken;
  if (pack < packs) {
    A mean[N];
    TROUPE_UNROLL
    for (int j = 0; j < N; ++j) mean[j] = means[pack * N + j];
    Pack<T, N> of_g[kRowsAtOnce], of_x[kRowsAtOnce];
    unsigned on[kRowsAtOnce];
    walk_rows(
        rows, packs, pack,
        [&](int64_t at, int k) {
          of_g[k] = g[at];
          of_x[k] = x[at];
          on[k] = bits ? bits[at] : ~0u;
        },
        [&](int64_t, int k) { taken.take(of_g[k], of_x[k], on[k], mean); });
  }
  join_rows<SumGradients<A>, N>(partial, taken, pack, packs);
}

/// The coefficients of a thread's channels.
template <class A, int N> struct CoefficientsOfPack {
  Coefficients<A> of[N];
  __device__ CoefficientsOfPack(const Coefficients<A>* channels, int64_t pack) {
    TROUPE_UNROLL
    for (int j = 0; j < N; ++j) of[j] = channels[pack * N + j];
  }
};

/// apply_channels() of such images.
template <class T>
__global__ void apply_rows(Pack<T, kNormPack<T>>* out, const Pack<T, kNormPack<T>>* x,
                           const Coefficients<Arithmetic<T>>* channels, int64_t rows, int64_t packs, bool relu,
                           const Pack<T, kNormPack<T>>* side, unsigned char* bits, int64_t bytes) {
  using A = Arithmetic<T>;
  constexpr int N = kNormPack<T>;
  const int64_t pack = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (pack >= packs) return;
  const CoefficientsOfPack<A, N> c(channels, pack);
  Pack<T, N> of_x[kRowsAtOnce], of_side[kRowsAtOnce];
  walk_rows(
      rows, packs, pack,
      [&](int64_t at, int k) {
        of_x[k] = x[at];
        if (side) of_side[k] = side[at];
      },
      [&](int64_t at, int k) {
        unsigned on = 0;
        TROUPE_UNROLL
        for (int j = 0; j < N; ++j) {
          A y = (widen(of_x[k].at[j]) - c.of[j].m) * c.of[j].q + c.of[j].b;
          if (side) y += widen(of_side[k].at[j]);
          if (relu) y = activation_functors::Relu::apply(y);
          of_x[k].at[j] = narrow<T>(y);
          if (widen(of_x[k].at[j]) > A(0)) on |= 1u << j;
        }
        out[at] = of_x[k];
        if (bits) bits[at] = static_cast<unsigned char>(on);
      });
  if (bits && pack == 0 && blockIdx.y == 0 && threadIdx.y == 0)
    for (int64_t rest = rows * packs; rest < bytes; ++rest) bits[rest] = 0;
}

/// apply_gradient() of such images.
template <class T>
__global__ void apply_gradient_rows(Pack<T, kNormPack<T>>* out, Pack<T, kNormPack<T>>* rectified,
                                    const Pack<T, kNormPack<T>>* g, const Pack<T, kNormPack<T>>* x,
                                    const unsigned char* bits, const Coefficients<Arithmetic<T>>* channels,
                                    int64_t rows, int64_t packs) {
  using A = Arithmetic<T>;
  constexpr int N = kNormPack<T>;
  const int64_t pack = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (pack >= packs) return;
  const CoefficientsOfPack<A, N> c(channels, pack);
  Pack<T, N> of_g[kRowsAtOnce], of_x[kRowsAtOnce];
  unsigned on[kRowsAtOnce];
  walk_rows(
      rows, packs, pack,
      [&](int64_t at, int k) {
        of_g[k] = g[at];
        of_x[k] = x[at];
        on[k] = bits ? bits[at] : ~0u;
      },
      [&](int64_t at, int k) {
        TROUPE_UNROLL
        for (int j = 0; j < N; ++j) {
          if ((on[k] >> j & 1) == 0) of_g[k].at[j] = T();
          of_x[k].at[j] = narrow<T>(gradient_by_x(c.of[j], widen(of_x[k].at[j]), widen(of_g[k].at[j])));
        }
        out[at] = of_x[k];
        if (rectified) rectified[at] = of_g[k];
      });
}

// -- Any images -------------------------------------------------------------------------------------------------------

/// What is done with images, [outer, channels, inner].
template <class T> struct Images {
  int64_t n;  // elements
  bool packed;
  GpuSizes sizes;
};

/// Relu behind the norm: of y + side, if that is not null. Unless null, `bits` gets where it is on, and 0 in what is
/// left of its `bytes`.
template <class T> struct ReluBehind {
  bool on = false;
  const T* side = nullptr;
  unsigned char* bits = nullptr;
  int64_t bytes = 0;
};

/// `out` may be the memory of x.
template <class T>
__global__ void apply_channels(T* out, const T* x, const Coefficients<Arithmetic<T>>* channels,
                               const __grid_constant__ Images<T> images, const ReluBehind<T> relu) {
  constexpr int kCount = kNormPack<T>;
  using A = Arithmetic<T>;
  for_each_pack<kCount>(images.n, [&](int64_t i, int count) {
    Pack<T, kCount> of_x, of_side;
    load_pack(of_x, x, i, count, images.packed);
    if (relu.side) load_pack(of_side, relu.side, i, count, images.packed);
    int64_t row = i;
    int64_t inner = images.sizes.pop(2, row), channel = images.sizes.pop(1, row);
    Coefficients<A> c = channels[channel];
    unsigned on = 0;
    TROUPE_UNROLL
    for (int k = 0; k < kCount; ++k) {
      A y = (widen(of_x.at[k]) - c.m) * c.q + c.b;
      if (relu.on) {
        if (relu.side) y += widen(of_side.at[k]);
        y = activation_functors::Relu::apply(y);
      }
      of_x.at[k] = narrow<T>(y);
      if (k < count && widen(of_x.at[k]) > A(0)) on |= 1u << k;
      if (++inner == images.sizes.size[2]) {
        inner = 0;
        if (++channel == images.sizes.size[1]) channel = 0;
        c = channels[channel];
      }
    }
    store_pack(out, of_x, i, count, images.packed);
    if (!relu.bits) return;
    relu.bits[i / kCount] = static_cast<unsigned char>(on);
    if (i + kCount >= images.n)
      for (int64_t rest = i / kCount + 1; rest < relu.bytes; ++rest) relu.bits[rest] = 0;
  });
}

/// Of gradients g. With `bits`, g is 0 where Relu is off, and `rectified` gets that if it is not null. `out` may be the
/// memory of g.
template <class T>
__global__ void apply_gradient(T* out, T* rectified, const T* g, const T* x, const unsigned char* bits,
                               const Coefficients<Arithmetic<T>>* channels, const __grid_constant__ Images<T> images) {
  constexpr int kCount = kNormPack<T>;
  using A = Arithmetic<T>;
  for_each_pack<kCount>(images.n, [&](int64_t i, int count) {
    Pack<T, kCount> of_x, of_g;
    load_pack(of_x, x, i, count, images.packed);
    load_pack(of_g, g, i, count, images.packed);
    const unsigned on = bits ? bits[i / kCount] : ~0u;
    int64_t row = i;
    int64_t inner = images.sizes.pop(2, row), channel = images.sizes.pop(1, row);
    Coefficients<A> c = channels[channel];
    TROUPE_UNROLL
    for (int k = 0; k < kCount; ++k) {
      if ((on >> k & 1) == 0) of_g.at[k] = T();
      of_x.at[k] = narrow<T>(gradient_by_x(c, widen(of_x.at[k]), widen(of_g.at[k])));
      if (++inner == images.sizes.size[2]) {
        inner = 0;
        if (++channel == images.sizes.size[1]) channel = 0;
        c = channels[channel];
      }
    }
    store_pack(out, of_x, i, count, images.packed);
    if (rectified) store_pack(rectified, of_g, i, count, images.packed);
  });
}

/// Memory for one of V for each of n channels.
template <class V> Result<Tensor> scratch_for(const KernelContext& c, int64_t n) {
  return c.allocate(DType::kUInt8, {n * static_cast<int64_t>(sizeof(V))});
}
template <class V> const V* at(const Tensor& t) { return static_cast<const V*>(t.address()); }
template <class V> V* at(Tensor& t) { return static_cast<V*>(t.mutable_address()); }

/// By channels.
ReducePlan plan_of(const ImagesView& v) {
  const bool reduced[] = {true, false, true};
  return plan_reduce(Shape{v.outer, v.channels, v.inner}, reduced);
}

/// Whether what is not null of these can be read as packs.
template <class T> bool all_hold_packs(std::initializer_list<const void*> memory) {
  return std::ranges::all_of(memory, [](const void* at) { return holds_packs<T, kNormPack<T>>(at); });
}
template <class T> Images<T> images_of(const ImagesView& v, bool packed) {
  const int64_t sizes[] = {v.outer, v.channels, v.inner};
  return {v.outer * v.channels * v.inner, packed, GpuSizes(sizes, 3)};
}
/// Whether images go by rows of packs of channels.
template <class T> bool by_rows(const ImagesView& v, bool packed) {
  return packed && v.inner == 1 && v.channels % kNormPack<T> == 0 && !v.empty();
}
template <class T> const Pack<T, kNormPack<T>>* packs(const T* at) {
  return reinterpret_cast<const Pack<T, kNormPack<T>>*>(at);
}
template <class T> Pack<T, kNormPack<T>>* packs(T* at) { return reinterpret_cast<Pack<T, kNormPack<T>>*>(at); }

/// Joins the parts of rows of each channel, if there are several: sum(partial) puts in what makes them.
template <class R, class Out, class F>
Status join_parts(KernelContext& c, Tensor& out, const ChannelsLast& all, int64_t channels, F sum) {
  using A = typename R::Accumulator;
  TROUPE_ASSIGN(Tensor partial, scratch_for<A>(c, channels * all.parts));
  declare_uses(c, {&out, &partial});
  const gpu::Compute& gpu = *c.device().gpu;
  TROUPE_RETURN_IF_ERROR(sum(at<A>(partial)));
  return TROUPE_LAUNCH(gpu.stream, (join_segments<R, Out>), gpu::blocks_for(gpu.card, channels, kColumnRows),
                       dim3(32, kColumnRows), 0, at<Out>(out), at<A>(std::as_const(partial)), channels, all.parts,
                       all.rows);
}

template <class T> Status sum_statistics(KernelContext& c, const T* x, Tensor& statistics, const ImagesView& v) {
  using A = Arithmetic<T>;
  if (!by_rows<T>(v, all_hold_packs<T>({x})))
    return launch_reduction<Statistics<T>, T, MeanAndVariance<A>>(c, x, statistics, plan_of(v));
  const gpu::Compute& gpu = *c.device().gpu;
  const ChannelsLast all(gpu.card, v.outer, v.channels / kNormPack<T>, kBlocksThatSum);
  return join_parts<Statistics<T>, MeanAndVariance<A>>(c, statistics, all, v.channels, [&](Moments<A>* partial) {
    return TROUPE_LAUNCH(gpu.stream, sum_moments<T>, all.blocks, all.threads, 0, partial, packs(x), all.rows,
                         all.packs);
  });
}

template <class T>
Status sum_gradients_of(KernelContext& c, const GradientsOfChannels<T>& from, Tensor& sums, const ImagesView& v) {
  using A = Arithmetic<T>;
  if (!by_rows<T>(v, all_hold_packs<T>({from.g, from.x})))
    return launch_reduction_of<SumGradients<A>, GradientSums<A>>(c, from, sums, plan_of(v));
  const gpu::Compute& gpu = *c.device().gpu;
  const ChannelsLast all(gpu.card, v.outer, v.channels / kNormPack<T>, kBlocksThatSum);
  return join_parts<SumGradients<A>, GradientSums<A>>(c, sums, all, v.channels, [&](GradientSums<A>* partial) {
    return TROUPE_LAUNCH(gpu.stream, sum_gradients<T>, all.blocks, all.threads, 0, partial, packs(from.g),
                         packs(from.x), from.bits, from.means, all.rows, all.packs);
  });
}

template <class T>
Status apply(const gpu::Compute& gpu, T* y, const T* x, const Coefficients<Arithmetic<T>>* channels,
             const ReluBehind<T>& relu, const ImagesView& v) {
  const bool packed = all_hold_packs<T>({y, x, relu.side});
  const int64_t n = v.count() * v.channels;
  if (by_rows<T>(v, packed)) {
    const ChannelsLast all(gpu.card, v.outer, v.channels / kNormPack<T>, kBlocksThatApply);
    return TROUPE_LAUNCH(gpu.stream, apply_rows<T>, all.blocks, all.threads, 0, packs(y), packs(x), channels, all.rows,
                         all.packs, relu.on, packs(relu.side), relu.bits, relu.bytes);
  }
  return TROUPE_LAUNCH(gpu.stream, apply_channels<T>, pack_blocks<kNormPack<T>>(gpu, n), kElementThreads, 0, y, x,
                       channels, images_of<T>(v, packed), relu);
}

template <class T>
Status apply(const gpu::Compute& gpu, T* dx, T* rectified, const T* g, const T* x, const unsigned char* bits,
             const Coefficients<Arithmetic<T>>* channels, const ImagesView& v) {
  const bool packed = all_hold_packs<T>({dx, rectified, g, x});
  const int64_t n = v.count() * v.channels;
  if (by_rows<T>(v, packed)) {
    const ChannelsLast all(gpu.card, v.outer, v.channels / kNormPack<T>, kBlocksThatApply);
    return TROUPE_LAUNCH(gpu.stream, apply_gradient_rows<T>, all.blocks, all.threads, 0, packs(dx), packs(rectified),
                         packs(g), packs(x), bits, channels, all.rows, all.packs);
  }
  return TROUPE_LAUNCH(gpu.stream, apply_gradient<T>, pack_blocks<kNormPack<T>>(gpu, n), kElementThreads, 0, dx,
                       rectified, g, x, bits, channels, images_of<T>(v, packed));
}

template <class T> class GpuBatchNorm final : public ComputeKernel {
 public:
  using A = Arithmetic<T>;
  explicit GpuBatchNorm(const KernelInit& init, BatchNormRelu relu = {}) : attrs_(init), relu_(relu) {}
  Status compute(KernelContext& c) override {
    const Tensor& x = c.input(0);
    TROUPE_ASSIGN(const ImagesView v, batch_norm_view(c, attrs_));
    if (relu_.side) TROUPE_RETURN_IF_ERROR(check_side_input(c));
    const gpu::Compute& gpu = *c.device().gpu;
    const bool computed = attrs_.training || v.empty();
    // Batch mean and variance, then those for the gradient.
    Tensor vectors[4] = {c.input(3), c.input(4), c.input(3), c.input(4)};
    Tensor statistics;
    if (computed) {
      for (Tensor& t : vectors) {
        TROUPE_ASSIGN(t, c.allocate(dtype_of<A>, {v.channels}));
      }
      TROUPE_ASSIGN(statistics, scratch_for<MeanAndVariance<A>>(c, v.channels));
      TROUPE_RETURN_IF_ERROR(sum_statistics<T>(c, at<T>(x), statistics, v));
    }
    const int64_t kept = relu_.on && attrs_.training ? relu_reserve(x.elements(), relu_.group, sizeof(A)) : 0;
    TROUPE_ASSIGN(Tensor reserve, c.allocate(dtype_of<A>, {kept}));
    const T* const from = at<T>(x);
    TROUPE_ASSIGN(Tensor y, c.forward_or_allocate(0, dtype_of<T>, x.shape()));
    if (v.channels > 0) {
      TROUPE_ASSIGN(Tensor coefficients, scratch_for<Coefficients<A>>(c, v.channels));
      if (computed)
        declare_uses(c, {&y, &reserve, &coefficients, &statistics, &vectors[0], &vectors[1], &vectors[2], &vectors[3]});
      else declare_uses(c, {&y, &coefficients});
      ChannelVectors<A> all = {};
      all.scale = at<A>(c.input(1));
      all.offset = at<A>(c.input(2));
      all.mean = at<A>(c.input(3));
      all.variance = at<A>(c.input(4));
      if (computed) {
        all.computed = at<MeanAndVariance<A>>(std::as_const(statistics));
        all.batch_mean = at<A>(vectors[0]);
        all.batch_variance = at<A>(vectors[1]);
        all.reserve_mean = at<A>(vectors[2]);
        all.reserve_variance = at<A>(vectors[3]);
      }
      TROUPE_RETURN_IF_ERROR(TROUPE_LAUNCH(gpu.stream, prepare_channels<A>, pack_blocks<1>(gpu, v.channels),
                                           kElementThreads, 0, at<Coefficients<A>>(coefficients), all, v.channels,
                                           v.count(), v.empty(), attrs_.training, attrs_.blends(), attrs_.epsilon,
                                           attrs_.factor));
      if (!v.empty()) {
        ReluBehind<T> relu{.on = relu_.on, .side = relu_.side ? at<T>(c.input(5)) : nullptr};
        if (kept > 0) relu.bits = at<unsigned char>(reserve), relu.bytes = static_cast<int64_t>(reserve.bytes());
        TROUPE_RETURN_IF_ERROR(
            apply<T>(gpu, at<T>(y), from, at<Coefficients<A>>(std::as_const(coefficients)), relu, v));
      }
    }
    c.set_output(0, std::move(y));
    for (int i = 0; i < 4; ++i) c.set_output(i + 1, std::move(vectors[i]));
    c.set_output(5, std::move(reserve));
    return {};
  }

 private:
  const BatchNormAttrs attrs_;
  const BatchNormRelu relu_;
};

template <class T> class GpuBatchNormGrad final : public ComputeKernel {
 public:
  using A = Arithmetic<T>;
  explicit GpuBatchNormGrad(const KernelInit& init, BatchNormRelu relu = {}) : attrs_(init), relu_(relu) {}
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(1), &mean = c.input(3);
    TROUPE_ASSIGN(const ImagesView v, batch_norm_grad_view(c, attrs_));
    const unsigned char* bits = nullptr;
    if (relu_.on) {
      TROUPE_RETURN_IF_ERROR(check_relu_reserve(c.input(5), relu_reserve(x.elements(), relu_.group, sizeof(A))));
      bits = at<unsigned char>(c.input(5));
    }
    const gpu::Compute& gpu = *c.device().gpu;
    TROUPE_ASSIGN(Tensor by_scale, c.allocate(dtype_of<A>, {v.channels}));
    TROUPE_ASSIGN(Tensor by_offset, c.allocate(dtype_of<A>, {v.channels}));
    Tensor rectified;
    if (relu_.side) {
      TROUPE_ASSIGN(rectified, c.allocate(dtype_of<T>, x.shape()));
    }
    const T* const from = at<T>(c.input(0));
    TROUPE_ASSIGN(Tensor dx, c.forward_or_allocate(0, dtype_of<T>, x.shape()));
    if (v.channels > 0) {
      TROUPE_ASSIGN(Tensor sums, scratch_for<GradientSums<A>>(c, v.channels));
      TROUPE_ASSIGN(Tensor coefficients, scratch_for<Coefficients<A>>(c, v.channels));
      const GradientsOfChannels<T> gradients{from, at<T>(x), at<A>(mean), bits};
      TROUPE_RETURN_IF_ERROR(sum_gradients_of<T>(c, gradients, sums, v));
      declare_uses(c, {&dx, relu_.side ? &rectified : &dx, &by_scale, &by_offset, &sums, &coefficients});
      TROUPE_RETURN_IF_ERROR(TROUPE_LAUNCH(gpu.stream, prepare_gradients<A>, pack_blocks<1>(gpu, v.channels),
                                           kElementThreads, 0, at<Coefficients<A>>(coefficients), at<A>(by_scale),
                                           at<A>(by_offset), at<GradientSums<A>>(std::as_const(sums)),
                                           at<A>(c.input(2)), at<A>(mean), at<A>(c.input(4)), v.channels, v.count(),
                                           attrs_.training, attrs_.epsilon));
      if (!v.empty())
        TROUPE_RETURN_IF_ERROR(apply<T>(gpu, at<T>(dx), relu_.side ? at<T>(rectified) : nullptr, from, at<T>(x), bits,
                                        at<Coefficients<A>>(std::as_const(coefficients)), v));
    }
    c.set_output(0, std::move(dx));
    c.set_output(1, std::move(by_scale));
    c.set_output(2, std::move(by_offset));
    if (relu_.on) {
      if (relu_.side) c.set_output(3, std::move(rectified));
      return {};
    }
    TROUPE_ASSIGN(Tensor none, c.allocate(dtype_of<A>, {0}));
    c.set_output(3, none);
    c.set_output(4, std::move(none));
    return {};
  }

 private:
  const BatchNormAttrs attrs_;
  const BatchNormRelu relu_;
};

template <class K> Result<std::unique_ptr<ComputeKernel>> make_gpu_with_relu(const KernelInit& init) {
  TROUPE_ASSIGN(const BatchNormRelu relu, BatchNormRelu::parse(init));
  return std::unique_ptr<ComputeKernel>(new K(init, relu));
}

template <class... T> void add_kernels(KernelRegistry& kernels, TypeList<T...>) {
  const auto types = [](DType t, DType u) { return KernelRegistry::Types{{"T", {t}}, {"U", {u}}}; };
  (kernels.add<GpuBatchNorm<T>>("FusedBatchNormV3", DeviceKind::kCuda, types(dtype_of<T>, dtype_of<Arithmetic<T>>)),
   ...);
  (kernels.add<GpuBatchNormGrad<T>>("FusedBatchNormGradV3", DeviceKind::kCuda,
                                    types(dtype_of<T>, dtype_of<Arithmetic<T>>)),
   ...);
  (kernels.add("_FusedBatchNormRelu", DeviceKind::kCuda, types(dtype_of<T>, dtype_of<Arithmetic<T>>),
               make_gpu_with_relu<GpuBatchNorm<T>>),
   ...);
  (kernels.add("_FusedBatchNormReluGrad", DeviceKind::kCuda, types(dtype_of<T>, dtype_of<Arithmetic<T>>),
               make_gpu_with_relu<GpuBatchNormGrad<T>>),
   ...);
}

}  // namespace

void register_batch_norm_gpu(KernelRegistry& kernels) { add_kernels(kernels, GpuFloats{}); }

}  // namespace troupe::TROUPE_GPU_VARIANT
