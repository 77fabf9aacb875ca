// SPDX-License-Identifier: Apache-2.0
// Rows of indices into several dimensions.
#include "ops/array/nd_index.h"

#include "base/join.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {

Result<BadIndices> bad_indices_policy(const Attrs& attrs) {
  const auto policy = attrs.get_or<std::string>("bad_indices_policy", "");
  if (policy.empty() || policy == "DEFAULT" || policy == "ERROR") return BadIndices::kError;
  if (policy == "IGNORE") return BadIndices::kIgnore;
  return invalid_argument("bad_indices_policy '{}' is none of DEFAULT, ERROR and IGNORE", policy);
}

Result<std::vector<int64_t>> nd_slices(const Tensor& indices, const Shape& shape, BadIndices policy) {
  TROUPE_RETURN_IF_ERROR(nd_shape(indices.shape(), shape).status());
  const int depth = static_cast<int>(indices.dim(-1));
  int64_t rows = 1;
  for (int i = 0; i + 1 < indices.rank(); ++i) rows *= indices.shape()[i];
  if (depth == 0 && rows > INT32_MAX)
    return invalid_argument("indices of shape {} name the whole of {} too often", indices.shape().str(), shape.str());
  std::vector<int64_t> out(static_cast<size_t>(rows), 0);
  Status bad;
  const bool integers = with_type(indices.dtype(), TypeList<int32_t, int64_t, int16_t>{}, [&]<class I>() {
    const I* row = indices.data<I>();
    for (int64_t r = 0; r < rows; ++r, row += depth)
      for (int d = 0; d < depth; ++d) {
        if (row[d] >= 0 && row[d] < shape[d]) {
          out[r] = out[r] * shape[d] + row[d];
          continue;
        }
        if (policy == BadIndices::kError && bad.ok())
          bad = invalid_argument("indices [{}] of row {} do not index into shape {}: index {} is not in [0, {})",
                                 join(std::vector<int64_t>(row, row + depth)), r, shape.str(), row[d], shape[d]);
        out[r] = -1;
        break;
      }
  });
  if (!integers) return invalid_argument("indices must be integers, not {}", to_string(indices.dtype()));
  TROUPE_RETURN_IF_ERROR(bad);
  return out;
}

Result<std::vector<int64_t>> row_slices(const Tensor& indices, int64_t bound) {
  Shape apart = indices.shape();
  if (apart.rank() == kMaxRank) return invalid_argument("indices of shape {} have too many dimensions", apart.str());
  apart.push_back(1);
  TROUPE_ASSIGN(const Tensor rows, indices.reshape(apart));
  return nd_slices(rows, Shape{bound});
}

Result<PartialShape> nd_shape(const PartialShape& indices, const PartialShape& shape) {
  if (!indices.has_rank()) return PartialShape();
  if (indices.rank() == 0) return invalid_argument("indices must have rank 1 or more, but are a scalar");
  if (!shape.has_rank() || indices.dim(-1) < 0) return PartialShape();
  if (indices.dim(-1) > shape.rank())
    return invalid_argument("indices of shape {} into {}", indices.str(), shape.str());
  std::vector<int64_t> sizes(indices.dims().begin(), indices.dims().end() - 1);
  sizes.insert(sizes.end(), shape.dims().begin() + indices.dim(-1), shape.dims().end());
  return PartialShape::make(sizes);
}

int64_t nd_slice_size(const Tensor& indices, const Shape& shape) {
  int64_t n = 1;
  for (int i = static_cast<int>(indices.dim(-1)); i < shape.rank(); ++i) n *= shape[i];
  return n;
}

}  // namespace troupe
