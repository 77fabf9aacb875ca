// SPDX-License-Identifier: Apache-2.0
// How a thread of a GPU finds the element it is for: division by numbers that the host knows, and the places of an
// element in inputs that broadcast. Passed to kernels by value.
#pragma once
#include <cstdint>

#include "base/host_device.h"
#include "ops/parts/broadcast.h"

namespace troupe {

/// Division of numbers from 0 on by a number from 1 on, by a product (Granlund and Montgomery, "Division by invariant
/// integers using multiplication", 1994). Quicker for numbers below 2^31.
struct KnownDivisor {
  uint64_t factor = 1;
  uint32_t narrow_factor = 1, shift = 0;

  KnownDivisor() = default;
  explicit KnownDivisor(int64_t divisor) {
    const auto by = static_cast<uint64_t>(divisor);
    while (uint64_t{1} << shift < by) ++shift;
    const uint64_t rest = (uint64_t{1} << shift) - by;
    factor = static_cast<uint64_t>((static_cast<unsigned __int128>(rest) << 64) / by + 1);
    if (shift < 32) narrow_factor = static_cast<uint32_t>((rest << 32) / by + 1);
  }
  TROUPE_HOST_DEVICE int64_t divide(int64_t x) const {
    const auto n = static_cast<uint64_t>(x);
#ifdef __CUDA_ARCH__
    const uint64_t high = __umul64hi(n, factor);
#else
    const auto high = static_cast<uint64_t>(static_cast<unsigned __int128>(n) * factor >> 64);
#endif
    return static_cast<int64_t>((high + n) >> shift);
  }
  /// Of numbers below 2^31.
  TROUPE_HOST_DEVICE int32_t divide_narrow(int32_t x) const {
    const auto n = static_cast<uint32_t>(x);
    return static_cast<int32_t>((static_cast<uint32_t>(uint64_t{n} * narrow_factor >> 32) + n) >> shift);
  }
};

/// Sizes of up to so many dimensions, by which kernels take numbers of elements apart.
template <int kMost> struct GpuSizesOf {
  int rank = 0;
  bool narrow = true;  // all numbers of elements are below 2^31
  int64_t size[kMost] = {};
  KnownDivisor divisor[kMost];

  GpuSizesOf() = default;
  /// Sizes whose product fits an int64; where one is 0 there are no elements to be numbered.
  GpuSizesOf(const int64_t* sizes, int count) : rank(count) {
    int64_t product = 1;
    for (int d = 0; d < rank; ++d) {
      size[d] = sizes[d];
      product *= sizes[d];
      divisor[d] = KnownDivisor(sizes[d] > 0 ? sizes[d] : 1);
    }
    narrow = product < int64_t{1} << 31;
  }
  /// The last coordinate of element i of the dimensions up to d; i becomes the number of the element of those before.
  TROUPE_HOST_DEVICE int64_t pop(int d, int64_t& i) const {
    const int64_t before = narrow ? divisor[d].divide_narrow(static_cast<int32_t>(i)) : divisor[d].divide(i);
    const int64_t last = i - before * size[d];
    i = before;
    return last;
  }
};

using GpuSizes = GpuSizesOf<kMaxRank>;

/// A Broadcast for kernels.
struct GpuBroadcast {
  GpuSizes sizes;
  int64_t stride[3][kMaxRank] = {};

  explicit GpuBroadcast(const Broadcast& b) : sizes(b.size.data(), b.rank) {
    for (int k = 0; k < 3; ++k)
      for (int d = 0; d < b.rank; ++d) stride[k][d] = b.stride[k][d];
  }
  /// Where element i of the result is in the first N inputs.
  template <int N> TROUPE_HOST_DEVICE void places(int64_t i, int64_t (&at)[N]) const {
    for (int k = 0; k < N; ++k) at[k] = 0;
    for (int d = sizes.rank - 1; d >= 0; --d) {
      const int64_t last = d > 0 ? sizes.pop(d, i) : i;
      for (int k = 0; k < N; ++k) at[k] += last * stride[k][d];
    }
  }
};

}  // namespace troupe
