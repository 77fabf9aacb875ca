// SPDX-License-Identifier: Apache-2.0
// Kernels of GPUs that apply one function to each element, as templates over function and type. A thread does four
// neighbouring elements at a time, which it reads and writes at once where they lie so. The types that element-wise
// ops have on GPUs, and their registration. What surrounds the launches is in ops/parts/gpu_elementwise.h.
#pragma once
#include "gpu/launch.h"
#include "ops/parts/gpu_elementwise.h"
#include "ops/parts/gpu_index.h"
#include "ops/parts/type_dispatch.h"

namespace troupe::TROUPE_GPU_VARIANT {

using GpuFloats = TypeList<float, double, float16, bfloat16>;
using GpuNumbers = TypeList<float, double, float16, bfloat16, int32_t, int64_t>;
using GpuNumbersAndBool = TypeList<float, double, float16, bfloat16, int32_t, int64_t, bool>;

inline constexpr int kElementThreads = 256;

/// How many elements of the largest of these types a thread does at a time.
template <class... T>
inline constexpr int kPack = static_cast<int>(std::clamp<size_t>(16 / std::max({sizeof(T)...}), 1, 4));

/// N neighbouring elements, read and written as one.
template <class T, int N> struct alignas(sizeof(T) * N) Pack { T at[N]; };
/// Whether elements from here on can be read as packs.
template <class T, int N> bool holds_packs(const void* at) {
  return reinterpret_cast<uintptr_t>(at) % alignof(Pack<T, N>) == 0;
}

/// Elements [i, i + count) of `from`, and T() behind them.
template <class T, int N>
__device__ inline void load_pack(Pack<T, N>& to, const T* from, int64_t i, int count, bool packed) {
  if (packed && count == N) {
    to = *reinterpret_cast<const Pack<T, N>*>(from + i);
  } else {
    TROUPE_UNROLL
    for (int k = 0; k < N; ++k) to.at[k] = k < count ? from[i + k] : T();
  }
}
template <class T, int N>
__device__ inline void store_pack(T* to, const Pack<T, N>& from, int64_t i, int count, bool packed) {
  if (packed && count == N) {
    *reinterpret_cast<Pack<T, N>*>(to + i) = from;
  } else {
    TROUPE_UNROLL
    for (int k = 0; k < N; ++k)
      if (k < count) to[i + k] = from.at[k];
  }
}

/// Calls f(i, count) for packs of elements [i, i + count) below n, each by one thread.
template <int N, class F> __device__ inline void for_each_pack(int64_t n, F f) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x * N;
  for (int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * N; i < n; i += step)
    f(i, n - i < N ? static_cast<int>(n - i) : N);
}
template <int N> unsigned pack_blocks(const gpu::Compute& gpu, int64_t n) {
  return gpu::blocks_for(gpu.card, n, kElementThreads, N);
}

/// An input of a function of several that is as large as the result, or one element.
template <class T, int N> struct Operand {
  const T* at;
  bool one, packed;
  Operand(const void* at, Reads reads)
      : at(static_cast<const T*>(at)), one(reads == Reads::kOne), packed(holds_packs<T, N>(at)) {}
};
/// What the operand has for elements [i, i + count) of the result.
template <class T, int N>
__device__ inline void load_operand(Pack<T, N>& to, const Operand<T, N>& from, int64_t i, int count) {
  if (from.one) {
    const T one = *from.at;
    TROUPE_UNROLL
    for (int k = 0; k < N; ++k) to.at[k] = one;
  } else {
    load_pack(to, from.at, i, count, from.packed);
  }
}

/// out[i] = F::apply(x[i], parameter).
template <class F, class From, class To>
__global__ void map_elements(To* out, const From* x, int64_t n, bool packed, double parameter) {
  constexpr int kCount = kPack<From, To>;
  for_each_pack<kCount>(n, [&](int64_t i, int count) {
    Pack<From, kCount> in;
    Pack<To, kCount> result;
    load_pack(in, x, i, count, packed);
    TROUPE_UNROLL
    for (int k = 0; k < kCount; ++k) result.at[k] = F::apply(in.at[k], parameter);
    store_pack(out, result, i, count, packed);
  });
}
template <class F, class From, class To> Status launch_map(const GpuUnary& u) {
  constexpr int kCount = kPack<From, To>;
  const bool packed = holds_packs<From, kCount>(u.x) && holds_packs<To, kCount>(u.out);
  return TROUPE_LAUNCH(u.gpu.stream, (map_elements<F, From, To>), pack_blocks<kCount>(u.gpu, u.n), kElementThreads, 0,
                       static_cast<To*>(u.out), static_cast<const From*>(u.x), u.n, packed, u.parameter);
}

/// out[i] = F::apply(a[i], b[i], parameter), where a or b may be one element.
template <class F, class T, class R>
__global__ void map_pairs(R* out, const Operand<T, kPack<T, R>> a, const Operand<T, kPack<T, R>> b, int64_t n,
                          bool packed, double parameter) {
  constexpr int kCount = kPack<T, R>;
  for_each_pack<kCount>(n, [&](int64_t i, int count) {
    Pack<T, kCount> x, y;
    Pack<R, kCount> result;
    load_operand(x, a, i, count);
    load_operand(y, b, i, count);
    TROUPE_UNROLL
    for (int k = 0; k < kCount; ++k) result.at[k] = F::apply(x.at[k], y.at[k], parameter);
    store_pack(out, result, i, count, packed);
  });
}
/// The same of inputs that broadcast, element by element.
template <class F, class T, class R>
__global__ void map_broadcast_pairs(R* out, const T* a, const T* b, int64_t n, double parameter,
                                    const __grid_constant__ GpuBroadcast plan) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) {
    int64_t at[2];
    plan.places(i, at);
    out[i] = F::apply(a[at[0]], b[at[1]], parameter);
  }
}
template <class F, class T, class R> Status launch_pairs(const GpuBinary& b) {
  constexpr int kCount = kPack<T, R>;
  if (b.a_reads == Reads::kStrided || b.b_reads == Reads::kStrided)
    return TROUPE_LAUNCH(b.gpu.stream, (map_broadcast_pairs<F, T, R>),
                         gpu::blocks_for(b.gpu.card, b.n, kElementThreads), kElementThreads, 0, static_cast<R*>(b.out),
                         static_cast<const T*>(b.a), static_cast<const T*>(b.b), b.n, b.parameter,
                         GpuBroadcast(b.plan));
  return TROUPE_LAUNCH(b.gpu.stream, (map_pairs<F, T, R>), pack_blocks<kCount>(b.gpu, b.n), kElementThreads, 0,
                       static_cast<R*>(b.out), Operand<T, kCount>(b.a, b.a_reads), Operand<T, kCount>(b.b, b.b_reads),
                       b.n, holds_packs<R, kCount>(b.out), b.parameter);
}

/// A function of the CPU's loops (ops/parts/elementwise.h) on elements.
template <class F, class R> struct OfElements {
  template <class T> static __device__ R apply(T x, double parameter) {
    const auto v = widen(x);
    if constexpr (!std::is_same_v<T, R>) return static_cast<R>(F::apply(v));
    else if constexpr (requires { F::apply(v, &parameter); }) return narrow<R>(F::apply(v, &parameter));
    else return narrow<R>(F::apply(v));
  }
  template <class T> static __device__ R apply(T a, T b, double parameter) {
    const auto x = widen(a), y = widen(b);
    if constexpr (!std::is_same_v<T, R>) return static_cast<R>(F::apply(x, y));
    else if constexpr (requires { F::apply(x, y, &parameter); }) return narrow<R>(F::apply(x, y, &parameter));
    else return narrow<R>(F::apply(x, y));
  }
};
/// bool for predicates, else T.
template <class F, class T, class = void> struct GpuResult { using Type = T; };
template <class F, class T> struct GpuResult<F, T, std::void_t<typename F::Predicate>> { using Type = bool; };

/// Registers the unary function F for every T of the list; `parameter` names a float attribute.
template <class F, class... T>
void add_unary(KernelRegistry& kernels, const char* op, TypeList<T...>, const char* parameter = "") {
  (add_gpu_unary(kernels, op, dtype_of<T>, dtype_of<typename GpuResult<F, T>::Type>,
                 launch_map<OfElements<F, typename GpuResult<F, T>::Type>, T, typename GpuResult<F, T>::Type>,
                 parameter),
   ...);
}
/// Registers the binary function F for every T of the list.
template <class F, class... T>
void add_binary(KernelRegistry& kernels, const char* op, TypeList<T...>, const char* parameter = "") {
  constexpr bool broadcasts = !requires { typename F::SameShape; };
  (add_gpu_binary(kernels, op, dtype_of<T>, dtype_of<typename GpuResult<F, T>::Type>,
                  launch_pairs<OfElements<F, typename GpuResult<F, T>::Type>, T, typename GpuResult<F, T>::Type>,
                  broadcasts, parameter),
   ...);
}

}  // namespace troupe::TROUPE_GPU_VARIANT
