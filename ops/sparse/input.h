// SPDX-License-Identifier: Apache-2.0
// Sparse tensors as ops take them: places, values and sizes.
#pragma once
#include <algorithm>
#include <utility>
#include <vector>

#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {

/// What SerializeSparse makes of a sparse tensor: indices, values, sizes.
constexpr int64_t kSerializedParts = 3;

/// The inputs of a node that are a sparse tensor, and where its values lie in the dense one, in row-major order.
struct SparseInput {
  const Tensor *indices = nullptr, *values = nullptr;
  Shape shape;
  std::vector<int64_t> places;

  int64_t size() const { return values->elements(); }
  const int64_t* at(int64_t i) const { return indices->data<int64_t>() + i * shape.rank(); }

  /// Errors: shapes that do not fit, an index out of range.
  static Result<SparseInput> read(const Tensor& indices, const Tensor& values, const Tensor& sizes) {
    SparseInput out{&indices, &values, {}, {}};
    TROUPE_ASSIGN(out.shape, shape_from(sizes, "the shape of a sparse tensor"));
    if (indices.rank() != 2 || indices.dim(1) != out.shape.rank() || values.rank() != 1 ||
        values.dim(0) != indices.dim(0))
      return invalid_argument("indices of shape {} and values of shape {} in {}", indices.shape().str(),
                              values.shape().str(), out.shape.str());
    for (int64_t i = 0; i < out.size(); ++i) {
      int64_t place = 0;
      for (int d = 0; d < out.shape.rank(); ++d) {
        const int64_t index = out.at(i)[d];
        if (index < 0 || index >= out.shape[d])
          return invalid_argument("index {} at [{},{}] is not in [0, {})", index, i, d, out.shape[d]);
        place = place * out.shape[d] + index;
      }
      out.places.push_back(place);
    }
    return out;
  }
};

/// The indices of these places of a tensor of `shape`, a row for each.
inline Result<Tensor> indices_of(const KernelContext& c, std::span<const int64_t> places, const Shape& shape) {
  const int64_t sizes[] = {static_cast<int64_t>(places.size()), shape.rank()};
  TROUPE_ASSIGN(const Shape rows, Shape::make(sizes));
  TROUPE_ASSIGN(Tensor out, c.allocate(DType::kInt64, rows));
  int64_t* row = out.mutable_data<int64_t>();
  for (int64_t place : places) {
    for (int d = shape.rank() - 1; d >= 0; --d) {
      row[d] = place % shape[d];
      place /= shape[d];
    }
    row += shape.rank();
  }
  return out;
}

/// The shapes of a sparse tensor's three inputs, checked: a matrix of indices, as many values, a size for each column.
inline Result<PartialShape> sparse_shapes(const ShapeContext& c, int indices, int values, int sizes) {
  TROUPE_ASSIGN(const PartialShape rows, c.with_rank(indices, 2));
  TROUPE_ASSIGN(const PartialShape count, c.with_rank(values, 1));
  TROUPE_ASSIGN(const PartialShape rank, c.with_rank(sizes, 1));
  return PartialShape::merge(rows.has_rank() ? rows : PartialShape::of_rank(2),
                             PartialShape{count.has_rank() ? count[0] : -1, rank.has_rank() ? rank[0] : -1});
}

}  // namespace troupe
