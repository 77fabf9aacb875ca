// SPDX-License-Identifier: Apache-2.0
// _FusedElementwise on GPUs: each thread runs the whole program for a few neighbouring elements, so that only inputs
// and the result touch the card's memory. The last result stays in registers; one that a later function than the next
// reads has a place of its thread alone in the memory of the block. 16-bit floats are rounded after each function, as
// by the nodes one by one.
#include "ops/fused/gpu_elementwise.h"
#include "ops/math/binary_functors.h"
#include "ops/math/unary_functors.h"
#include "ops/nn/activation_functors.h"
#include "ops/parts/elementwise.cuh"

namespace troupe::TROUPE_GPU_VARIANT {
namespace {

constexpr unsigned kFusedThreads = 128;
/// What a block may have without asking.
constexpr size_t kFusedShared = 48 << 10;

/// holds_packs() for kernels.
template <class T, int N> __device__ inline bool begins_pack(const void* at) {
  return reinterpret_cast<uintptr_t>(at) % alignof(Pack<T, N>) == 0;
}

/// Where element i of the result is in an input that has these dimensions of it.
__device__ inline int64_t place_in(const GpuSizes& sizes, unsigned dimensions, int64_t i) {
  int64_t at = 0, stride = 1;
  for (int d = sizes.rank - 1; d >= 0; --d) {
    const int64_t last = d > 0 ? sizes.pop(d, i) : i;
    if ((dimensions >> d & 1) == 0) continue;
    at += last * stride;
    stride *= sizes.size[d];
  }
  return at;
}

/// Elements [i, i + count) of an input that is repeated. `whole`: packs do not reach over the last dimension's end.
template <class T, int N>
__device__ inline void load_repeated(Pack<T, N>& to, const GpuFusedInput& from, const GpuSizes& sizes, bool whole,
                                     int64_t i, int count) {
  const auto* const at = static_cast<const T*>(from.at);
  if (!whole) {
    TROUPE_UNROLL
    for (int k = 0; k < N; ++k) to.at[k] = k < count ? at[place_in(sizes, from.dimensions, i + k)] : T();
    return;
  }
  const int64_t first = place_in(sizes, from.dimensions, i);
  if (from.dimensions >> (sizes.rank - 1) & 1) {
    load_pack(to, at, first, count, begins_pack<T, N>(at));
  } else {
    const T one = at[first];
    TROUPE_UNROLL
    for (int k = 0; k < N; ++k) to.at[k] = one;
  }
}

template <class F, class T, int N> __device__ inline void apply_unary(Pack<T, N>& to, const Pack<T, N>& x) {
  TROUPE_UNROLL
  for (int k = 0; k < N; ++k) to.at[k] = OfElements<F, T>::apply(x.at[k], 0.0);
}
template <class F, class T, int N>
__device__ inline void apply_binary(Pack<T, N>& to, const Pack<T, N>& a, const Pack<T, N>& b) {
  TROUPE_UNROLL
  for (int k = 0; k < N; ++k) to.at[k] = OfElements<F, T>::apply(a.at[k], b.at[k], 0.0);
}

/// One instantiation for each type: the function is chosen in the kernel, alike for all threads.
template <class T>
__global__ void run_program(T* out, int64_t n, const __grid_constant__ GpuProgram program,
                            const __grid_constant__ GpuFusedInputs inputs) {
  constexpr int kCount = kPack<T>;
  using Values = Pack<T, kCount>;
  TROUPE_SHARED_DYNAMIC(Values, kept);
  const GpuSizes& sizes = inputs.sizes;
  const bool whole = sizes.rank > 0 && sizes.size[sizes.rank - 1] % kCount == 0;
  const bool packed = begins_pack<T, kCount>(out);
  for_each_pack<kCount>(n, [&](int64_t i, int count) {
    Values last = {};
    const auto load = [&](Values& to, unsigned operand) {
      if (operand == GpuOperand::kLast) {
        to = last;
      } else if (operand >= GpuOperand::kKept) {
        to = kept[(operand - GpuOperand::kKept) * blockDim.x + threadIdx.x];
      } else {
        const GpuFusedInput& from = inputs.at[operand];
        const auto* const at = static_cast<const T*>(from.at);
        if (from.reads == Reads::kDense) {
          load_pack(to, at, i, count, begins_pack<T, kCount>(at));
        } else if (from.reads == Reads::kOne) {
          const T one = *at;
          TROUPE_UNROLL
          for (int k = 0; k < kCount; ++k) to.at[k] = one;
        } else {
          load_repeated(to, from, sizes, whole, i, count);
        }
      }
    };
    for (int j = 0; j < program.length; ++j) {
      const GpuInstruction next = program.code[j];
      Values a, b;
      load(a, next.a);
      load(b, next.b);
      switch (next.function) {
#define TROUPE_UNARY_CASE(name, functor) \
  case GpuFunction::k##name:             \
    apply_unary<functor>(last, a);       \
    break;
#define TROUPE_BINARY_CASE(name, functor) \
  case GpuFunction::k##name:              \
    apply_binary<functor>(last, a, b);    \
    break;
        TROUPE_FUSED_UNARY(TROUPE_UNARY_CASE)
        TROUPE_FUSED_BINARY(TROUPE_BINARY_CASE)
#undef TROUPE_UNARY_CASE
#undef TROUPE_BINARY_CASE
      }
      if (next.slot != GpuInstruction::kNoSlot) kept[next.slot * blockDim.x + threadIdx.x] = last;
    }
    store_pack(out, last, i, count, packed);
  });
}

}  // namespace

Status launch_fused(const gpu::Compute& gpu, const GpuProgram& program, const GpuFusedInputs& inputs, Tensor& y) {
  Status status;
  const int64_t n = y.elements();
  with_type(y.dtype(), GpuFloats{}, [&]<class T>() {
    constexpr int kCount = kPack<T>;
    const size_t slots = std::max(program.slots, 1);  // a kernel with such memory is given some
    const size_t of_thread = slots * sizeof(Pack<T, kCount>);
    unsigned threads = kFusedThreads;
    while (threads * of_thread > kFusedShared) threads /= 2;  // whatever a program keeps, a warp has room
    static_assert(32 * kMostFused * sizeof(Pack<T, kCount>) <= kFusedShared);
    status = TROUPE_LAUNCH(gpu.stream, run_program<T>, gpu::blocks_for(gpu.card, n, threads, kCount), threads,
                           threads * of_thread, static_cast<T*>(y.mutable_address()), n, program, inputs);
  });
  return status;
}

}  // namespace troupe::TROUPE_GPU_VARIANT
