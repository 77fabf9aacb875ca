// SPDX-License-Identifier: Apache-2.0
// Sums and means of gradients, row by row.
#include "containers/sparse_gradient_accumulator.h"

#include "containers/gradient_sums.h"

namespace troupe {

Result<std::unique_ptr<Resource>> SparseGradientAccumulator::make(std::string name, DType dtype, PartialShape shape,
                                                                  Reduction reduction) {
  TROUPE_RETURN_IF_ERROR(Accumulator::check(name, dtype));
  return std::unique_ptr<Resource>(new SparseGradientAccumulator(std::move(name), dtype, std::move(shape), reduction));
}

Status SparseGradientAccumulator::check(const Tensor& indices, const Tensor& values, const Tensor& whole) const {
  const auto wrong = [&](const char* what) {
    return invalid_argument("accumulator '{}' for {}{}: {}; indices {}, values {}{}, shape {}", name(),
                            to_string(dtype()), shape().str(), what, indices.str(), to_string(values.dtype()),
                            values.shape().str(), whole.str());
  };
  if (indices.dtype() != DType::kInt64 || indices.rank() != 1) return wrong("indices must be a vector of int64");
  if (values.dtype() != dtype() || values.rank() == 0 || values.dim(0) != indices.dim(0))
    return wrong("there must be a row of values for each index");
  Shape row = values.shape();
  row.erase(0);
  if (any_ && !(row == row_shape_)) return wrong("rows of former gradients have another shape");
  std::vector<int64_t> sizes = {-1};
  for (const int64_t d : row.dims()) sizes.push_back(d);
  if (whole.elements() > 0) {
    if (whole.dtype() != DType::kInt64 || whole.elements() != static_cast<int64_t>(sizes.size()))
      return wrong("the shape has another number of sizes");
    sizes[0] = whole.data<int64_t>()[0];
    for (size_t i = 1; i < sizes.size(); ++i)
      if (sizes[i] != whole.data<int64_t>()[i]) return wrong("the rows have another shape");
  }
  TROUPE_ASSIGN(const PartialShape given, PartialShape::make(sizes));
  const bool empty_scalar = shape().has_rank() && shape().rank() == 0 && indices.elements() == 0;
  if (!empty_scalar && !shape().compatible(given)) return wrong("the gradient has another shape");
  const int64_t known = shape().has_rank() && shape().rank() > 0 ? shape()[0] : -1;
  for (const int64_t i : indices.values<int64_t>())
    if (i < 0 || (known >= 0 && i >= known) || (sizes[0] >= 0 && i >= sizes[0]))
      return wrong("an index is out of range");
  return {};
}

Status SparseGradientAccumulator::apply_gradient(int64_t local_step, const Tensor& indices, const Tensor& values,
                                                 const Tensor& whole, int64_t replica,
                                                 std::shared_ptr<Allocator> allocator) {
  TROUPE_RETURN_IF_ERROR(check(indices, values, whole));
  if (local_step < global_step()) return {};
  allocator_ = std::move(allocator);
  Gradient gradient{indices, values};
  if (replica >= 0) by_replica_.emplace(replica, std::move(gradient));
  else TROUPE_RETURN_IF_ERROR(add(gradient));
  row_shape_ = values.shape();
  row_shape_.erase(0);
  any_ = true;
  add_one();
  return {};
}

Status SparseGradientAccumulator::add(const Gradient& gradient) {
  const std::span<const int64_t> indices = gradient.indices.values<int64_t>();
  std::vector<Tensor> rows;  // all of them before the first is added
  for (size_t i = 0; i < indices.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    TROUPE_ASSIGN(Tensor row, gradient.values.slice(at, at + 1));
    if (!rows_.contains(indices[i])) {
      TROUPE_ASSIGN(row, row.clone(allocator_));
    }
    rows.push_back(std::move(row));
  }
  ++gradients_;
  for (size_t i = 0; i < rows.size(); ++i) {
    Row& row = rows_[indices[i]];
    if (row.sum.defined()) add_gradient(dtype(), row.sum, rows[i]);
    else row.sum = std::move(rows[i]);
    row.gradients += std::exchange(row.last, gradients_) != gradients_;  // an index may be there twice
  }
  return {};
}

Result<std::vector<Tensor>> SparseGradientAccumulator::reduce() {
  for (auto next = by_replica_.begin(); next != by_replica_.end(); next = by_replica_.erase(next))
    TROUPE_RETURN_IF_ERROR(add(next->second));
  const auto n = static_cast<int64_t>(rows_.size());
  Shape shape = row_shape_;
  shape.insert(0, n);
  TROUPE_ASSIGN(Tensor indices, Tensor::make(DType::kInt64, Shape{n}, allocator_));
  TROUPE_ASSIGN(Tensor values, Tensor::make(dtype(), shape, allocator_));
  int64_t* index = indices.mutable_data<int64_t>();
  auto* out = static_cast<char*>(values.mutable_raw());
  for (auto& [i, row] : rows_) {
    *index++ = i;
    if (reduction() != Reduction::kSum)
      divide_gradient(dtype(), row.sum, reduction() == Reduction::kMean ? row.gradients : count());
    copy_elements(dtype(), row.sum.raw(), out, row.sum.elements());
    out += row.sum.bytes();
  }
  std::vector<int64_t> whole = {this->shape().has_rank() && this->shape().rank() > 0 ? this->shape()[0] : -1};
  for (const int64_t d : row_shape_.dims()) whole.push_back(d);
  rows_.clear();
  any_ = false;
  return std::vector<Tensor>{std::move(indices), std::move(values),
                             Tensor::of<int64_t>(std::span<const int64_t>(whole))};
}

}  // namespace troupe
