// SPDX-License-Identifier: Apache-2.0
// What files of kernels (*.cu) are written with, so that they serve twice: compiled by nvcc for GPUs, and as C++ by the
// shim of gpu/fake/block.h for machines without one. All of their code is in namespace troupe::TROUPE_GPU_VARIANT,
// which is on_cuda or on_fake: both may be in one program.
//
//   __global__ void scale(float* x, float by, int64_t n) { ... threadIdx.x ... __syncthreads() ... }
//   return TROUPE_LAUNCH(stream, scale, blocks, threads, shared_bytes, x, 2.0f, n);      // a Status
//
// A kernel that is a template with several arguments is named in brackets: (scale<T, A>). Arguments are copied when the
// launch is put in. In a kernel, memory that the threads of a block share is
//   TROUPE_SHARED(float, tile, [32][33]);        // float tile[32][33]
//   TROUPE_SHARED_DYNAMIC(float, row);           // float* row, of shared_bytes
// and begins undefined.
#pragma once
#include "gpu/runtime.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>

#define TROUPE_GPU_VARIANT on_cuda
#define TROUPE_UNROLL _Pragma("unroll")
#define TROUPE_LAUNCH(stream, kernel, blocks, threads, shared_bytes, ...)                                      \
  [&](::troupe::gpu::Stream& troupe_stream) -> ::troupe::Status {                                              \
    kernel<<<blocks, threads, shared_bytes, static_cast<cudaStream_t>(troupe_stream.native())>>>(__VA_ARGS__); \
    return troupe_stream.check_launch(#kernel);                                                                \
  }(stream)
#define TROUPE_SHARED(type, name, dimensions) __shared__ type name dimensions
#define TROUPE_SHARED_DYNAMIC(type, name)                        \
  extern __shared__ __align__(16) unsigned char troupe_shared[]; \
  type* const name = reinterpret_cast<type*>(troupe_shared)
#elif !defined(TROUPE_GPU_VARIANT)
#error "files of kernels are compiled by nvcc, or after gpu/fake/block.h"
#endif

namespace troupe::gpu {

/// How many blocks of `threads`, each of which takes `each` elements at a time, are worth starting for n elements: few
/// enough that each does several rounds where there are very many. At least 1.
inline unsigned blocks_for(const Card& card, int64_t n, int64_t threads, int64_t each = 1) {
  const int64_t wanted = (n + threads * each - 1) / (threads * each);
  const int64_t most = int64_t{card.multiprocessors > 0 ? card.multiprocessors : 1} * 32;
  return static_cast<unsigned>(wanted < 1 ? 1 : wanted < most ? wanted : most);
}

}  // namespace troupe::gpu
