// SPDX-License-Identifier: Apache-2.0
// What the ops count that say how often numbers come: those of dense tensors (ops/math/histogram.cpp) and of sparse
// ones (ops/sparse/counts.cpp).
#pragma once
#include <span>
#include <vector>

#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"
#include "ops/parts/wrapping.h"
#include "troupe/kernel.h"

namespace troupe {

/// Types of weights and of their sums.
using WeightTypes = TypeList<int32_t, int64_t, float, double>;

/// Numbers, none below 0, each of a row and with a weight of 1 or its own. `weights` is an input, which outlives this.
struct Counted {
  bool rows_apart = false;  // else there is one row, which results do not name
  int64_t rows = 1;
  std::vector<int64_t> values, row = {};  // `row` only where rows are apart
  const Tensor* weights = nullptr;

  size_t size() const { return values.size(); }
  int64_t row_of(size_t i) const { return rows_apart ? row[i] : 0; }
  template <class T> T weight(size_t i) const { return weights ? weights->data<T>()[i] : T(1); }

  /// The elements of x, all in one row. Errors: weights of another shape than x, unless they are empty; a number below
  /// 0.
  static Result<Counted> all(const Tensor& x, const Tensor& weights) {
    if (weights.elements() > 0 && weights.shape() != x.shape())
      return invalid_argument("weights of shape {} for values of shape {}", weights.shape().str(), x.shape().str());
    Counted out;
    if (weights.elements() > 0) out.weights = &weights;
    TROUPE_ASSIGN(const Tensor flat, x.reshape(Shape{x.elements()}));
    TROUPE_ASSIGN(out.values, int_values(flat, "values"));
    for (size_t i = 0; i < out.size(); ++i)
      if (out.values[i] < 0) return invalid_argument("value {} at position {} is negative", out.values[i], i);
    return out;
  }
  /// Those of a vector in one row, those of a matrix by its rows. Errors: as all(); another rank.
  static Result<Counted> by_row(const Tensor& x, const Tensor& weights) {
    if (x.rank() > 2) return invalid_argument("values of shape {} have more than rows", x.shape().str());
    TROUPE_ASSIGN(Counted out, all(x, weights));
    if (x.rank() < 2) return out;
    out.rows_apart = true;
    out.rows = x.dim(0);
    for (size_t i = 0; i < out.size(); ++i) out.row.push_back(static_cast<int64_t>(i) / x.dim(1));
    return out;
  }

  /// For each number below the scalar `size` the sum of its weights, or with `binary` whether it comes: a vector, or a
  /// row for each.
  Result<Tensor> bins(const KernelContext& c, const Tensor& size_input, DType dtype, bool binary) const {
    if (size_input.rank() != 0) return invalid_argument("size must be a scalar, not {}", size_input.shape().str());
    TROUPE_ASSIGN(const int64_t width, count_from(size_input, "size"));
    const int64_t sizes[] = {rows, width};
    TROUPE_ASSIGN(const Shape shape, Shape::make(std::span(sizes).subspan(rows_apart ? 0 : 1)));
    TROUPE_ASSIGN(Tensor y, Tensor::zeros(dtype, shape, c.device().allocator));
    with_type(dtype, WeightTypes{}, [&]<class T>() {
      T* sums = y.mutable_data<T>();
      for (size_t i = 0; i < size(); ++i) {
        if (values[i] >= width) continue;
        T& bin = sums[row_of(i) * width + values[i]];
        bin = binary ? T(1) : wrapping_add(bin, weight<T>(i));
      }
    });
    return y;
  }
};

}  // namespace troupe
