// SPDX-License-Identifier: Apache-2.0
// What the threads of a warp or a block make together. All threads call these, in blocks of whole warps.
#pragma once
#include "gpu/launch.h"

namespace troupe::TROUPE_GPU_VARIANT {

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

}  // namespace troupe::TROUPE_GPU_VARIANT
