// SPDX-License-Identifier: Apache-2.0
// Rows of a table that indices name, in any order and more than once. A warp owns some rows of the table and 32 of
// their columns: it looks at all indices and does those of its rows one after the other. So what happens to an element
// happens in the order of the indices, as on CPUs, with neither atomics nor a sort. An index that is out of range is
// passed over: a GPU has no way to say so.
#pragma once
#include <algorithm>
#include <span>

#include "gpu/warp.cuh"
#include "ops/parts/gpu_index.h"
#include "troupe/tensor.h"

namespace troupe::TROUPE_GPU_VARIANT {

/// Indices and the table's sizes, for kernels.
struct IndexedRows {
  const void* indices;
  int index_bytes;           // of int16, int32 or int64
  int depth;                 // numbers that name a row
  int64_t bounds[kMaxRank];  // of each
  int64_t count;             // of rows that are named
  int64_t width, chunks;     // columns of the table, and parts of 32 of them
  int64_t owners;            // warps that share the rows of each part
  KnownDivisor by_owners;

  __device__ int64_t number(int64_t i) const {
    if (index_bytes == 4) return static_cast<const int32_t*>(indices)[i];
    if (index_bytes == 8) return static_cast<const int64_t*>(indices)[i];
    return static_cast<const int16_t*>(indices)[i];
  }
  /// The row that is named i-th; -1 where it is out of range.
  __device__ int64_t row(int64_t i) const {
    int64_t at = 0;
    for (int d = 0; d < depth; ++d) {
      const int64_t index = number(i * depth + d);
      if (index < 0 || index >= bounds[d]) return -1;
      at = at * bounds[d] + index;
    }
    return at;
  }
  __device__ int64_t owner_of(int64_t row) const { return row - by_owners.divide(row) * owners; }
};

/// `indices` are count rows of bounds.size() numbers.
inline IndexedRows index_rows(const gpu::Card& card, const Tensor& indices, std::span<const int64_t> bounds,
                              int64_t count, int64_t width) {
  IndexedRows rows{};
  rows.indices = indices.address();
  rows.index_bytes = static_cast<int>(size_of(indices.dtype()));
  rows.depth = static_cast<int>(bounds.size());
  int64_t all = 1;
  for (int d = 0; d < rows.depth; ++d) {
    rows.bounds[d] = bounds[static_cast<size_t>(d)];
    all *= rows.bounds[d];
  }
  rows.count = count;
  rows.width = width;
  rows.chunks = (width + 31) / 32;
  // Enough warps to keep the card busy, but no more, since each looks at all indices.
  const int64_t warps = int64_t{std::max(card.multiprocessors, 1)} * 16;
  rows.owners = std::clamp<int64_t>(std::min({warps / std::max<int64_t>(rows.chunks, 1), count, all}), 1, warps);
  rows.by_owners = KnownDivisor(rows.owners);
  return rows;
}

/// Blocks and threads of kernels that call for_each_part.
inline unsigned indexed_blocks(const gpu::Card& card, const IndexedRows& rows) {
  return gpu::blocks_for(card, rows.owners * rows.chunks, 8);
}
inline dim3 indexed_threads() { return dim3(32, 8); }

/// Calls f(owner, column) for each warp's parts of the table; the column of a lane may be behind the last.
template <class F> __device__ inline void for_each_part(const IndexedRows& rows, F f) {
  const int64_t parts = rows.owners * rows.chunks;
  for (int64_t p = int64_t{blockIdx.x} * blockDim.y + threadIdx.y; p < parts; p += int64_t{gridDim.x} * blockDim.y)
    f(p / rows.chunks, p % rows.chunks * 32 + threadIdx.x);
}

/// Calls change(row, read(i)) for the rows of an owner, in the order in which they are named; i is the how manyth that
/// is. What several of them need is read at once. All lanes call this.
template <class Read, class Change>
__device__ inline void for_each_named(const IndexedRows& rows, int64_t owner, Read read, Change change) {
  constexpr int kAtOnce = 4;
  for (int64_t begin = 0; begin < rows.count; begin += 32) {
    const int64_t mine = begin + threadIdx.x < rows.count ? rows.row(begin + threadIdx.x) : -1;
    for (unsigned mask = __ballot_sync(kAllLanes, mine >= 0 && rows.owner_of(mine) == owner); mask != 0;) {
      int64_t row[kAtOnce];
      decltype(read(begin)) value[kAtOnce];
      TROUPE_UNROLL
      for (int k = 0; k < kAtOnce; ++k) {
        row[k] = -1;
        if (mask == 0) continue;
        const int lane = __ffs(static_cast<int>(mask)) - 1;
        mask &= mask - 1;
        row[k] = __shfl_sync(kAllLanes, mine, lane);
        value[k] = read(begin + lane);
      }
      TROUPE_UNROLL
      for (int k = 0; k < kAtOnce; ++k)
        if (row[k] >= 0) change(row[k], value[k]);
    }
  }
}

}  // namespace troupe::TROUPE_GPU_VARIANT
