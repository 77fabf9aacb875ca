// SPDX-License-Identifier: Apache-2.0
// One copy for all ops that only move elements: transpose, slice, pad, tile, reverse, concat.
#pragma once
#include <array>

#include "troupe/kernel.h"

namespace troupe {

/// A box of elements, read with strides `from` and written with strides `to` (in elements; either may be negative).
/// The last dimension should have the smallest step in the output.
struct StridedCopy {
  int rank = 0;
  std::array<int64_t, 2 * kMaxRank> size, from, to;  // the first rank are set
  void push(int64_t n, int64_t step_from, int64_t step_to) {
    size[rank] = n;
    from[rank] = step_from;
    to[rank++] = step_to;
  }
};

/// The same box with fewer dimensions: without those of one element, and those that continue one another as one. At
/// least one dimension. No size is 0.
StridedCopy merged(const StridedCopy& box);

/// Copies the box; `to` and `from` point at its first element. Elements are of `dtype`, strings included.
void strided_copy(DType dtype, void* to, const void* from, const StridedCopy& box, int threads);

/// Strides in elements of a dense tensor.
std::array<int64_t, kMaxRank> strides_of(const Shape& shape);

/// x repeated to `shape` by NumPy's rules; x itself where that is its shape. Error where it does not fit.
Result<Tensor> broadcast_to(const Tensor& x, const Shape& shape, const std::shared_ptr<Allocator>& allocator,
                            int threads);

/// Input i to be written to: its own memory where nobody else wants it and `other`, which is read meanwhile, lies
/// elsewhere; else a copy.
Result<Tensor> writable_input(const KernelContext& c, int i, const Tensor& other);

/// `data` moved by `elements` elements of `dtype`.
inline void* advance(void* data, int64_t elements, DType dtype) {
  return static_cast<char*>(data) + elements * static_cast<int64_t>(size_of(dtype));
}
inline const void* advance(const void* data, int64_t elements, DType dtype) {
  return static_cast<const char*>(data) + elements * static_cast<int64_t>(size_of(dtype));
}

}  // namespace troupe
