// SPDX-License-Identifier: Apache-2.0
// CUDA's kernels on the host. A file of kernels (*.cu) that is compiled after this header is C++: what it launches goes
// into the stream as a closure that runs all threads of all blocks, in an order that a seed decides. A thread is a
// plain call until it waits for others, then it stays on its fiber (gpu/fake/fibers.h). Warps have 32 lanes.
//
// What CUDA leaves undefined is a fault here, with the kernel's name: a barrier that only some threads of a block
// reach, or that they reach at different lines; a value of a lane that takes no part; too large a block or too much
// shared memory. Shared memory begins as bytes of 0xff, anew for each block.
//
// Included by what CMake writes around each .cu file, and by tests of kernels of their own; by nothing else, since it
// defines CUDA's names.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpu/runtime.h"

/// The namespace of a file of kernels (gpu/launch.h).
#define TROUPE_GPU_VARIANT on_fake

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define TROUPE_UNROLL
#define __grid_constant__

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

namespace troupe::gpu::fake {

struct Position {
  dim3 thread, block, block_size, grid_size;
};

/// Of the thread of a kernel that runs.
const Position& position();

/// Faults of kernels since the last call, of all streams; at most 100. Any thread.
std::vector<std::string> take_faults();
void add_fault(std::string text);
/// What the order of threads of later launches is drawn from. Any thread.
void seed_launches(uint64_t seed);

struct Launch {
  const char* kernel = "";
  dim3 blocks, threads;
  size_t shared_bytes = 0;
  uint64_t seed = 0;  // 0: drawn from that of seed_launches
};
/// Runs thread(argument) for every thread of every block. Called by streams.
void run_blocks(const Launch& launch, void (*thread)(void* argument), void* argument);

/// Fills in the seed; a fault and false if CUDA would refuse the launch.
bool prepare(Launch& launch);

template <class... P, class... A>
Status launch(Stream& stream, const char* name, void (*kernel)(P...), dim3 blocks, dim3 threads, size_t shared_bytes,
              A&&... arguments) {
  static_assert((std::is_trivially_copyable_v<std::remove_cvref_t<P>> && ...),
                "arguments of kernels are copied as bytes");
  static_assert((!std::is_reference_v<P> && ...), "kernels take no references to the host's memory");
  Launch what{name, blocks, threads, shared_bytes};
  if (!prepare(what)) return make_error(Code::kInternal, "{} cannot be launched so", name);
  stream.enqueue([what, kernel, values = std::tuple<P...>(static_cast<P>(std::forward<A>(arguments))...)] {
    struct Call {
      void (*kernel)(P...);
      const std::tuple<P...>& values;
    } call{kernel, values};
    run_blocks(
        what,
        [](void* argument) {
          const Call& call = *static_cast<const Call*>(argument);
          std::apply(call.kernel, call.values);
        },
        &call);
  });
  return stream.check_launch(name);
}

/// Memory of the block that runs: the same for all its threads, by the address that each variable has.
void* shared_memory(const void* variable, size_t bytes);
void* dynamic_shared_memory();

/// Waits for all threads of the block.
void wait_block(std::source_location where);
/// The same, and counts or joins what the threads bring.
enum class Vote { kCount, kAnd, kOr };
int vote_block(bool value, Vote vote, std::source_location where);

/// Waits for the lanes of `mask`; each brings 8 bytes and gets those of lane `source` (of the warp, 0 to 31).
uint64_t exchange(unsigned mask, uint64_t value, int source, std::source_location where);
/// The lanes of `mask` whose value is true.
unsigned ballot(unsigned mask, bool value, std::source_location where);
/// The lane of this thread in its warp.
int lane();

template <class T> T shuffle(unsigned mask, T value, int source, std::source_location where) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = exchange(mask, bits, source, where);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
/// The lane at `to` within the part of `width` lanes that this lane is in; the lane itself where that leaves the part.
inline int within(int to, int width) {
  const int begin = lane() / width * width;
  return to >= begin && to < begin + width ? to : lane();
}

}  // namespace troupe::gpu::fake

#define TROUPE_LAUNCH(stream, kernel, blocks, threads, shared_bytes, ...) \
  ::troupe::gpu::fake::launch(stream, #kernel, kernel, blocks, threads, shared_bytes __VA_OPT__(, ) __VA_ARGS__)
#define TROUPE_SHARED(type, name, dimensions)     \
  static const char troupe_variable_##name = 0;   \
  using troupe_type_##name = type dimensions;     \
  auto& name = *static_cast<troupe_type_##name*>( \
      ::troupe::gpu::fake::shared_memory(&troupe_variable_##name, sizeof(troupe_type_##name)))
#define TROUPE_SHARED_DYNAMIC(type, name) \
  type* const name = static_cast<type*>(::troupe::gpu::fake::dynamic_shared_memory())

#define threadIdx (::troupe::gpu::fake::position().thread)
#define blockIdx (::troupe::gpu::fake::position().block)
#define blockDim (::troupe::gpu::fake::position().block_size)
#define gridDim (::troupe::gpu::fake::position().grid_size)
inline constexpr int warpSize = 32;

// CUDA's functions of devices.
inline void __syncthreads(std::source_location where = std::source_location::current()) {
  troupe::gpu::fake::wait_block(where);
}
inline int __syncthreads_count(int value, std::source_location where = std::source_location::current()) {
  return troupe::gpu::fake::vote_block(value, troupe::gpu::fake::Vote::kCount, where);
}
inline int __syncthreads_and(int value, std::source_location where = std::source_location::current()) {
  return troupe::gpu::fake::vote_block(value, troupe::gpu::fake::Vote::kAnd, where);
}
inline int __syncthreads_or(int value, std::source_location where = std::source_location::current()) {
  return troupe::gpu::fake::vote_block(value, troupe::gpu::fake::Vote::kOr, where);
}
inline void __syncwarp(unsigned mask = 0xffffffff, std::source_location where = std::source_location::current()) {
  troupe::gpu::fake::ballot(mask, false, where);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              std::source_location where = std::source_location::current()) {
  return troupe::gpu::fake::shuffle(mask, value, troupe::gpu::fake::lane() / width * width + source % width, where);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 std::source_location where = std::source_location::current()) {
  const int to = troupe::gpu::fake::lane() - static_cast<int>(delta);
  return troupe::gpu::fake::shuffle(mask, value, troupe::gpu::fake::within(to, width), where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   std::source_location where = std::source_location::current()) {
  const int to = troupe::gpu::fake::lane() + static_cast<int>(delta);
  return troupe::gpu::fake::shuffle(mask, value, troupe::gpu::fake::within(to, width), where);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32,
                  std::source_location where = std::source_location::current()) {
  const int to = troupe::gpu::fake::lane() ^ bits;
  return troupe::gpu::fake::shuffle(mask, value, troupe::gpu::fake::within(to, width), where);
}
inline unsigned __ballot_sync(unsigned mask, int value, std::source_location where = std::source_location::current()) {
  return troupe::gpu::fake::ballot(mask, value, where);
}
inline int __any_sync(unsigned mask, int value, std::source_location where = std::source_location::current()) {
  return troupe::gpu::fake::ballot(mask, value, where) != 0;
}
inline int __all_sync(unsigned mask, int value, std::source_location where = std::source_location::current()) {
  return troupe::gpu::fake::ballot(mask, value, where) == mask;
}
template <class T> T atomicAdd(T* at, std::type_identity_t<T> value) {
  if constexpr (std::is_integral_v<T>) return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
  T before = *at;
  T after;
  do after = before + value;
  while (!__atomic_compare_exchange(at, &before, &after, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return before;
}
template <class T> T atomicMax(T* at, std::type_identity_t<T> value) {
  T before = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (before < value &&
         !__atomic_compare_exchange_n(at, &before, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return before;
}
template <class T> T atomicMin(T* at, std::type_identity_t<T> value) {
  T before = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (value < before &&
         !__atomic_compare_exchange_n(at, &before, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return before;
}
template <class T> T atomicExch(T* at, std::type_identity_t<T> value) {
  return __atomic_exchange_n(at, value, __ATOMIC_RELAXED);
}
template <class T> T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
template <class T> T __ldg(const T* at) { return *at; }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((uint64_t{a} * b) >> 32); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
