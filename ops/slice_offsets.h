// SPDX-License-Identifier: Apache-2.0
// Rows of indices into the leading dimensions of a tensor, as GatherNd and ScatterNd have them.
#pragma once
#include <vector>

#include "troupe/tensor.h"

namespace troupe {

/// Offsets, in slices, of what the rows of `indices` ([..., depth], depth at most shape's rank) name: a slice has the
/// remaining dimensions of `shape`. Error: an index out of range, with its row and dimension.
template <class I> Result<std::vector<int64_t>> slice_offsets(const Tensor& indices, const Shape& shape) {
  const int depth = static_cast<int>(indices.dim(-1));
  int64_t n = 1;
  for (int i = 0; i + 1 < indices.rank(); ++i) n *= indices.dim(i);
  std::vector<int64_t> out(static_cast<size_t>(n), 0);
  const I* at = indices.data<I>();
  for (int64_t r = 0; r < n; ++r) {
    for (int d = 0; d < depth; ++d) {
      const int64_t i = at[r * depth + d];
      if (i < 0 || i >= shape[d])
        return invalid_argument("index {} of row {} is not in [0, {}), the size of dimension {}", i, r, shape[d], d);
      out[r] = out[r] * shape[d] + i;
    }
  }
  return out;
}

/// The same for indices of either type; every index by itself when `rows`, as GatherV2 and ScatterUpdate have them.
inline Result<std::vector<int64_t>> slice_offsets(Tensor indices, const Shape& shape, bool rows) {
  if (rows) {
    Shape apart = indices.shape();
    if (apart.rank() == kMaxRank) return invalid_argument("indices of shape {} have too many dimensions", apart.str());
    apart.push_back(1);
    TROUPE_ASSIGN(indices, indices.reshape(apart));
  }
  if (indices.rank() == 0 || indices.dim(-1) > shape.rank())
    return invalid_argument("indices of shape {} into {}", indices.shape().str(), shape.str());
  if (indices.dtype() == DType::kInt32) return slice_offsets<int32_t>(indices, shape);
  if (indices.dtype() == DType::kInt64) return slice_offsets<int64_t>(indices, shape);
  return invalid_argument("indices must be int32 or int64, not {}", to_string(indices.dtype()));
}

}  // namespace troupe
