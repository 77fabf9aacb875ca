// SPDX-License-Identifier: Apache-2.0
// Reading and making small integer tensors.
#include "ops/parts/index_tensors.h"

#include "ops/parts/type_dispatch.h"

namespace troupe {

namespace {

/// Calls f with the elements of an integer tensor, a span.
template <class F> Status with_ints(const Tensor& t, const char* what, F&& f) {
  if (with_type(t.dtype(), TypeList<int32_t, int64_t, int16_t, int8_t>{}, [&]<class T>() { f(t.values<T>()); }))
    return {};
  return invalid_argument("{} must be integers, not {}", what, to_string(t.dtype()));
}

Status check_vector(const Tensor& t, const char* what) {
  if (t.rank() > 1) return invalid_argument("{} must be a vector, not {}", what, t.shape().str());
  return {};
}

}  // namespace

Result<std::vector<int64_t>> int_values(const Tensor& t, const char* what) {
  TROUPE_RETURN_IF_ERROR(check_vector(t, what));
  std::vector<int64_t> out;
  TROUPE_RETURN_IF_ERROR(with_ints(t, what, [&](auto ints) { out.assign(ints.begin(), ints.end()); }));
  return out;
}

Result<IntList> int_list(const Tensor& t, const char* what) {
  TROUPE_RETURN_IF_ERROR(check_vector(t, what));
  IntList out;
  TROUPE_RETURN_IF_ERROR(with_ints(t, what, [&](auto ints) {
    for (const int64_t number : ints) out.push_back(number);
  }));
  return out;
}

Result<int64_t> int_scalar(const Tensor& t, const char* what) {
  if (t.elements() != 1) return invalid_argument("{} must be one number, not {}", what, t.shape().str());
  int64_t out = 0;
  TROUPE_RETURN_IF_ERROR(with_ints(t, what, [&](auto ints) { out = ints.front(); }));
  return out;
}

Result<int64_t> count_from(const Tensor& t, const char* what) {
  TROUPE_ASSIGN(const int64_t count, int_scalar(t, what));
  if (count < 0) return invalid_argument("{} must not be negative: {}", what, count);
  return count;
}

Result<std::vector<int64_t>> paddings_from(const Tensor& t, int rank, const char* what) {
  if (t.rank() != 2 || t.shape()[1] != 2 || (rank >= 0 && t.shape()[0] != rank))
    return invalid_argument("{} of shape {} for {} dimensions", what, t.shape().str(), rank);
  TROUPE_ASSIGN(const Tensor flat, t.reshape(Shape{t.elements()}));
  TROUPE_ASSIGN(const auto pads, int_values(flat, what));
  for (int64_t p : pads)
    if (p < 0 || p > INT64_MAX / 4) return invalid_argument("{}: {} is not a size", what, p);
  return pads;
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

int64_t sizes_product(const Shape& s, int begin, int end) {
  int64_t n = 1;
  for (int i = begin; i < end; ++i) n *= s[i];
  return n;
}

Result<PartialShape> slices_shape(const PartialShape& x, const PartialShape& first, int64_t rows, const char* what) {
  if (!x.has_rank() || !first.has_rank()) return PartialShape();
  std::vector<int64_t> sizes = {rows};
  bool leads = first.rank() <= x.rank();
  for (int d = 0; d < x.rank() && leads; ++d)
    if (d >= first.rank()) sizes.push_back(x[d]);
    else leads = x[d] < 0 || first[d] < 0 || x[d] == first[d];
  if (!leads) return invalid_argument("{} of shape {} do not lead shape {}", what, first.str(), x.str());
  return PartialShape::make(sizes);
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
