// SPDX-License-Identifier: Apache-2.0
// Reading and making small integer tensors.
#include "ops/index_tensors.h"

namespace troupe {

Result<std::vector<int64_t>> int_values(const Tensor& t, const char* what) {
  if (t.rank() > 1) return invalid_argument("{} must be a vector, not {}", what, t.shape().str());
  if (t.dtype() == DType::kInt32) return std::vector<int64_t>(t.values<int32_t>().begin(), t.values<int32_t>().end());
  if (t.dtype() == DType::kInt64) return std::vector<int64_t>(t.values<int64_t>().begin(), t.values<int64_t>().end());
  return invalid_argument("{} must be int32 or int64, not {}", what, to_string(t.dtype()));
}

Result<int64_t> int_scalar(const Tensor& t, const char* what) {
  if (t.elements() != 1) return invalid_argument("{} must be one number, not {}", what, t.shape().str());
  if (t.dtype() == DType::kInt32) return int64_t{*t.data<int32_t>()};
  if (t.dtype() == DType::kInt64) return *t.data<int64_t>();
  return invalid_argument("{} must be int32 or int64, not {}", what, to_string(t.dtype()));
}

Result<int> axis_from(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) return invalid_argument("axis {} of a tensor of rank {}", axis, rank);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Result<int> axis_from(const Tensor& t, int rank) {
  TROUPE_ASSIGN(const int64_t axis, int_scalar(t, "the axis"));
  return axis_from(axis, rank);
}

Result<Shape> shape_from(const Tensor& t, const char* what) {
  TROUPE_ASSIGN(const std::vector<int64_t> sizes, int_values(t, what));
  return Shape::make(sizes);
}

Result<Tensor> int_tensor(DType dtype, std::span<const int64_t> values, const Shape& shape) {
  if (dtype == DType::kInt64) return Tensor::of<int64_t>(values, shape);
  std::vector<int32_t> narrow;
  for (int64_t v : values) {
    if (v != static_cast<int32_t>(v)) return invalid_argument("{} does not fit an int32", v);
    narrow.push_back(static_cast<int32_t>(v));
  }
  return Tensor::of<int32_t>(std::span<const int32_t>(narrow), shape);
}

}  // namespace troupe
