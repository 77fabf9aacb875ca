// SPDX-License-Identifier: Apache-2.0
// What the threads of a warp or a block make together. All threads call these, in blocks of whole warps.
#pragma once
#include "gpu/launch.h"

namespace troupe::TROUPE_GPU_VARIANT {

/// Threads of kernels that have a row of them for each row of n elements: a warp where rows are short, else a block.
inline dim3 row_threads(int64_t n) { return n <= 1024 ? dim3(32, 8) : dim3(256); }
inline unsigned row_blocks(const gpu::Card& card, int64_t rows, int64_t n) {
  return gpu::blocks_for(card, rows, row_threads(n).y);
}
/// Calls f(row) for rows, each by one row of threads.
template <class F> __device__ inline void for_each_row(int64_t rows, F f) {
  for (int64_t r = int64_t{blockIdx.x} * blockDim.y + threadIdx.y; r < rows; r += int64_t{gridDim.x} * blockDim.y) f(r);
}

inline constexpr unsigned kAllLanes = 0xffffffff;

/// The value of the lane `delta` behind this one; its own where there is none. Structs have a shuffle_down of their
/// own.
template <class T> __device__ inline T shuffle_down(T value, int delta) {
  if constexpr (sizeof(T) < 4) return static_cast<T>(__shfl_down_sync(kAllLanes, static_cast<int>(value), delta));
  else return __shfl_down_sync(kAllLanes, value, delta);
}

/// Joins the values of a warp by merge(a, b), in the order of a tree; the result is that of lane 0.
template <class T, class F> __device__ inline T reduce_warp(T value, F merge) {
  TROUPE_UNROLL
  for (int delta = 16; delta > 0; delta /= 2) value = merge(value, shuffle_down(value, delta));
  return value;
}

/// The same of a block of up to 32 warps in one dimension, of which one thread brings each value; the result is that of
/// thread 0. `nothing` is what a thread that is not there would bring. Begins and ends with all threads.
template <class T, class F> __device__ inline T reduce_block(T value, T nothing, F merge) {
  value = reduce_warp(value, merge);
  if (blockDim.x <= 32) return value;
  TROUPE_SHARED(T, of_warps, [32]);
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __syncthreads();  // an earlier call may still read
  if (lane == 0) of_warps[warp] = value;
  __syncthreads();
  if (warp == 0) value = reduce_warp(lane < blockDim.x / 32 ? of_warps[lane] : nothing, merge);
  return value;
}

/// The value of thread 0, for all threads of a block in one dimension.
template <class T> __device__ inline T broadcast_block(T value) {
  TROUPE_SHARED(T, of_first, [1]);
  __syncthreads();
  if (threadIdx.x == 0) of_first[0] = value;
  __syncthreads();
  return of_first[0];
}
/// The value of lane 0, for all lanes. Structs have an of_first_lane of their own.
template <class T> __device__ inline T of_first_lane(T value) { return __shfl_sync(kAllLanes, value, 0); }

/// A row of threads: a warp of a block of 32 x n, or a whole block in one dimension. The joined value of all its
/// threads, for all of them.
template <class T, class F> __device__ inline T reduce_row(T value, T nothing, F merge) {
  if (blockDim.x == 32) return of_first_lane(reduce_warp(value, merge));
  return broadcast_block(reduce_block(value, nothing, merge));
}

}  // namespace troupe::TROUPE_GPU_VARIANT
