// SPDX-License-Identifier: Apache-2.0
// Reductions on GPUs, as templates over a reducer (ops/parts/reducers.h, or one like these with an index) and types. A
// row of threads walks the elements of a result, or a column of them where results lie side by side; where results are
// few, their elements are split into segments, whose accumulators a second kernel joins. The order in which elements
// meet is always the same: no atomics.
#pragma once
#include "gpu/warp.cuh"
#include "ops/parts/gpu_elementwise.h"
#include "ops/parts/gpu_reduce.h"

namespace troupe::TROUPE_GPU_VARIANT {

inline constexpr int kReduceThreads = 256;
inline constexpr int kColumnRows = kReduceThreads / 32;  // threads that share a column

/// What a reduction reads. of() gives the elements of a result, to be indexed, of which the first is at `first`.
template <class T> struct Elements {
  const T* at;
  __device__ const T* of(int64_t /*result*/, int64_t first) const { return at + first; }
};

/// Accumulator a of reducer R with element x, the k-th of its result.
template <class R, class A, class T> __device__ inline A take_element(A a, T x, int64_t k) {
  if constexpr (requires { R::take(a, x, k); }) return R::take(a, x, k);
  else return R::take(a, x);
}

/// Blocks of 32 x 8 or 256 x 1 threads; a row of them for each result and segment. `partial`, if any, gets
/// accumulators in place of results.
template <class R, class From, class Out>
__global__ void reduce_rows(Out* out, typename R::Accumulator* partial, From x,
                            const __grid_constant__ GpuReduction plan) {
  using A = typename R::Accumulator;
  const auto merge = [](A a, A b) { return R::merge(a, b); };
  const int64_t units = plan.outputs * plan.segments;
  for (int64_t unit = int64_t{blockIdx.x} * blockDim.y + threadIdx.y; unit < units;
       unit += int64_t{gridDim.x} * blockDim.y) {
    const int64_t o = unit / plan.segments, s = unit % plan.segments;
    const int64_t begin = plan.count * s / plan.segments, end = plan.count * (s + 1) / plan.segments;
    const auto from = x.of(o, plan.kept.offset(o));
    A acc = R::nothing();
    for (int64_t r = begin + threadIdx.x; r < end; r += blockDim.x)
      acc = take_element<R>(acc, from[plan.reduced.offset(r)], r);
    acc = reduce_block(acc, R::nothing(), merge);
    if (threadIdx.x == 0) {
      if (partial) partial[unit] = acc;
      else out[o] = R::finish(acc, plan.count);
    }
  }
}

/// Blocks of 32 x 8 threads; 32 results side by side and a segment for each.
template <class R, class From, class Out>
__global__ void reduce_columns(Out* out, typename R::Accumulator* partial, From x,
                               const __grid_constant__ GpuReduction plan) {
  using A = typename R::Accumulator;
  TROUPE_SHARED(A, part, [kColumnRows][32]);
  const int64_t units = (plan.outputs + 31) / 32 * plan.segments;
  for (int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int64_t o = unit / plan.segments * 32 + threadIdx.x, s = unit % plan.segments;
    const int64_t begin = plan.count * s / plan.segments, end = plan.count * (s + 1) / plan.segments;
    A acc = R::nothing();
    if (o < plan.outputs) {
      const auto from = x.of(o, plan.kept.offset(o));
      for (int64_t r = begin + threadIdx.y; r < end; r += kColumnRows)
        acc = take_element<R>(acc, from[plan.reduced.offset(r)], r);
    }
    part[threadIdx.y][threadIdx.x] = acc;
    __syncthreads();
    if (threadIdx.y == 0 && o < plan.outputs) {
      for (int y = 1; y < kColumnRows; ++y) acc = R::merge(acc, part[y][threadIdx.x]);
      if (partial) partial[o * plan.segments + s] = acc;
      else out[o] = R::finish(acc, plan.count);
    }
    __syncthreads();
  }
}

/// Blocks of 32 x 8 threads; a warp for each result, whose segments lie side by side.
template <class R, class Out>
__global__ void join_segments(Out* out, const typename R::Accumulator* partial, int64_t outputs, int segments,
                              int64_t count) {
  using A = typename R::Accumulator;
  for (int64_t o = int64_t{blockIdx.x} * blockDim.y + threadIdx.y; o < outputs; o += int64_t{gridDim.x} * blockDim.y) {
    A acc = R::nothing();
    for (int s = static_cast<int>(threadIdx.x); s < segments; s += 32) acc = R::merge(acc, partial[o * segments + s]);
    acc = reduce_warp(acc, [](A a, A b) { return R::merge(a, b); });
    if (threadIdx.x == 0) out[o] = R::finish(acc, count);
  }
}

/// Reduces what `from` gives of the kernel's inputs into y, whose results are of type Out.
template <class R, class Out, class From>
Status launch_reduction_of(KernelContext& c, const From& from, Tensor& y, const ReducePlan& wanted) {
  using A = typename R::Accumulator;
  const gpu::Compute& gpu = *c.device().gpu;
  const GpuReduction plan(wanted, gpu.card);
  if (plan.outputs == 0) return {};
  Tensor scratch;
  A* partial = nullptr;
  if (plan.segments > 1) {
    const int64_t bytes = plan.outputs * plan.segments * static_cast<int64_t>(sizeof(A));
    TROUPE_ASSIGN(scratch, c.allocate(DType::kUInt8, {bytes}));
    partial = static_cast<A*>(scratch.mutable_address());
    declare_uses(c, {&y, &scratch});
  } else {
    declare_uses(c, {&y});
  }
  auto* out = static_cast<Out*>(y.mutable_address());
  const int64_t units = plan.outputs * plan.segments;
  if (plan.rows) {
    const dim3 threads = row_threads(plan.count);
    TROUPE_RETURN_IF_ERROR(TROUPE_LAUNCH(gpu.stream, (reduce_rows<R, From, Out>),
                                         gpu::blocks_for(gpu.card, units, threads.y), threads, 0, out, partial, from,
                                         plan));
  } else {
    const int64_t blocks = (plan.outputs + 31) / 32 * plan.segments;
    TROUPE_RETURN_IF_ERROR(TROUPE_LAUNCH(gpu.stream, (reduce_columns<R, From, Out>),
                                         gpu::blocks_for(gpu.card, blocks, 1), dim3(32, kColumnRows), 0, out, partial,
                                         from, plan));
  }
  if (!partial) return {};
  return TROUPE_LAUNCH(gpu.stream, (join_segments<R, Out>), gpu::blocks_for(gpu.card, plan.outputs, kColumnRows),
                       dim3(32, kColumnRows), 0, out, partial, plan.outputs, plan.segments, plan.count);
}

/// Reduces the elements at x.
template <class R, class T, class Out>
Status launch_reduction(KernelContext& c, const void* x, Tensor& y, const ReducePlan& wanted) {
  return launch_reduction_of<R, Out>(c, Elements<T>{static_cast<const T*>(x)}, y, wanted);
}

}  // namespace troupe::TROUPE_GPU_VARIANT
