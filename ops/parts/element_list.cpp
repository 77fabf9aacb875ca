// SPDX-License-Identifier: Apache-2.0
// Joining and parting elements of lists.
#include "ops/parts/element_list.h"

#include <algorithm>

#include "base/join.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"
#include "ops/parts/wrapping.h"

namespace troupe {

Result<PartialShape> partial_shape_from(const Tensor& t) {
  TROUPE_ASSIGN(const std::vector<int64_t> sizes, int_values(t, "element_shape"));
  if (t.rank() > 0) return PartialShape::make(sizes);
  if (sizes[0] != -1) return invalid_argument("element_shape {} must be a vector, or the scalar -1", sizes[0]);
  return PartialShape::unknown();
}

Result<PartialShape> common_shape(std::span<const Tensor> elements, PartialShape shape) {
  for (size_t i = 0; i < elements.size(); ++i) {
    if (!elements[i].defined()) continue;
    auto merged = PartialShape::merge(shape, PartialShape(elements[i].shape()));
    if (!merged.ok())
      return invalid_argument("element {} of shape {} in a list of shape {}", i, elements[i].shape().str(),
                              shape.str());
    shape = *merged;
  }
  return shape;
}

Result<Tensor> stack_elements(const KernelContext& c, std::span<const Tensor> elements, DType dtype,
                              const PartialShape& shape) {
  TROUPE_ASSIGN(const PartialShape common, common_shape(elements, shape));
  if (!common.fully_known())
    return invalid_argument("{} elements of shape {} cannot be stacked: none tells the missing sizes", elements.size(),
                            common.str());
  std::vector<int64_t> sizes(common.dims().begin(), common.dims().end());
  sizes.insert(sizes.begin(), static_cast<int64_t>(elements.size()));
  TROUPE_ASSIGN(const Shape stacked, Shape::make(sizes));
  TROUPE_ASSIGN(Tensor out, c.allocate(dtype, stacked));
  const int64_t n = common.shape().elements();
  const size_t bytes = static_cast<size_t>(n) * size_of(dtype);
  char* to = static_cast<char*>(out.mutable_raw());
  for (const Tensor& element : elements) {
    if (element.defined()) copy_elements(dtype, element.raw(), to, n);
    else if (!is_object(dtype)) std::memset(to, 0, bytes);
    to += bytes;
  }
  return out;
}

Result<std::vector<Tensor>> unstack_elements(const Tensor& t) {
  if (t.rank() == 0) return invalid_argument("a scalar, {}, has no rows", t.str());
  const Shape row(t.shape().dims().subspan(1));
  std::vector<Tensor> out;
  out.reserve(static_cast<size_t>(t.dim(0)));
  for (int64_t i = 0; i < t.dim(0); ++i) {
    TROUPE_ASSIGN(const Tensor rows, t.slice(i, i + 1));
    TROUPE_ASSIGN(Tensor element, rows.reshape(row));
    out.push_back(std::move(element));
  }
  return out;
}

Result<Joined> join_elements(const KernelContext& c, std::span<const Tensor> elements, DType dtype,
                             const PartialShape& shape, std::span<const int64_t> leading) {
  PartialShape rest = shape;
  if (rest.has_rank() && rest.rank() > 0) rest.set(0, -1);
  for (const Tensor& element : elements) {
    if (!element.defined()) continue;
    if (element.rank() == 0) return invalid_argument("scalars cannot be joined");
    PartialShape others(element.shape());
    others.set(0, -1);
    auto merged = PartialShape::merge(rest, others);
    if (!merged.ok())
      return invalid_argument("an element of shape {} cannot be joined to {}", element.shape().str(), rest.str());
    rest = *merged;
  }
  if (rest.has_rank() && rest.rank() == 0 && !elements.empty()) return invalid_argument("scalars cannot be joined");
  Joined out;
  int64_t rows = 0;
  for (size_t i = 0; i < elements.size(); ++i) {
    int64_t length = -1;
    if (elements[i].defined()) {
      length = elements[i].dim(0);
    } else {
      PartialShape own = rest;
      if (own.has_rank()) own.set(0, shape.has_rank() ? shape[0] : -1);
      if (own.has_rank() && own[0] < 0 && i < leading.size()) own.set(0, std::max(leading[i], int64_t{-1}));
      if (!own.fully_known())
        return invalid_argument("an element was never set, and its shape {} is not known", own.str());
      length = own[0];
    }
    out.lengths.push_back(length);
    if (__builtin_add_overflow(rows, length, &rows))
      return invalid_argument("lengths {} are too many", join(out.lengths));
  }
  if (!rest.has_rank() || rest.rank() == 0)
    return invalid_argument("no elements to join, and their shape {} is not known", shape.str());
  rest.set(0, rows);
  if (!rest.fully_known()) return invalid_argument("no elements to join, and their shape {} is not known", shape.str());
  TROUPE_ASSIGN(out.tensor, c.allocate(dtype, rest.shape()));
  char* to = static_cast<char*>(out.tensor.mutable_raw());
  const int64_t row = rows == 0 ? 0 : out.tensor.elements() / rows;
  for (size_t i = 0; i < elements.size(); ++i) {
    const int64_t n = out.lengths[i] * row;
    const size_t bytes = static_cast<size_t>(n) * size_of(dtype);
    if (elements[i].defined()) copy_elements(dtype, elements[i].raw(), to, n);
    else if (!is_object(dtype)) std::memset(to, 0, bytes);
    to += bytes;
  }
  return out;
}

Result<std::vector<Tensor>> part_elements(const Tensor& t, std::span<const int64_t> lengths) {
  if (t.rank() == 0) return invalid_argument("a scalar, {}, has no rows", t.str());
  int64_t at = 0;
  std::vector<Tensor> out;
  for (const int64_t length : lengths) {
    if (length < 0 || length > t.dim(0) - at)
      return invalid_argument("lengths {} do not part {} rows", join(lengths), t.dim(0));
    TROUPE_ASSIGN(Tensor part, t.slice(at, at + length));
    out.push_back(std::move(part));
    at += length;
  }
  if (at != t.dim(0)) return invalid_argument("lengths {} do not part {} rows", join(lengths), t.dim(0));
  return out;
}

namespace {

/// Lists within lists that the stack of a thread has room for.
constexpr int kMostNested = 1000;

Status check_nested(int depth) {
  if (depth <= kMostNested) return {};
  return invalid_argument("lists of tensors are nested more than {} deep", kMostNested);
}

Result<Tensor> add_nested(const KernelContext& c, const Tensor& a, const Tensor& b, int depth);

Result<Tensor> add_lists(const KernelContext& c, const TensorList& a, const TensorList& b, int depth) {
  TROUPE_RETURN_IF_ERROR(check_nested(depth));
  if (a.elements.size() != b.elements.size())
    return invalid_argument("lists of {} and {} elements cannot be added", a.elements.size(), b.elements.size());
  TensorList sum{a.dtype, a.shape, a.most, {}};
  for (size_t i = 0; i < a.elements.size(); ++i) {
    TROUPE_ASSIGN(Tensor element, add_nested(c, a.elements[i], b.elements[i], depth + 1));
    sum.elements.push_back(std::move(element));
  }
  return list_tensor(std::move(sum));
}

Result<Tensor> add_nested(const KernelContext& c, const Tensor& a, const Tensor& b, int depth) {
  if (!a.defined()) return b;
  if (!b.defined()) return a;
  if (a.dtype() != b.dtype() || a.shape() != b.shape())
    return invalid_argument("{}{} and {}{} cannot be added", to_string(a.dtype()), a.shape().str(),
                            to_string(b.dtype()), b.shape().str());
  if (a.elements() == 0) return a;  // of variants too, which loops' gradients keep in place of dead lists
  if (a.dtype() == DType::kVariant) {
    TROUPE_ASSIGN(const TensorList* x, list_of(a));
    TROUPE_ASSIGN(const TensorList* y, list_of(b));
    return add_lists(c, *x, *y, depth);
  }
  TROUPE_ASSIGN(Tensor out, c.allocate(a.dtype(), a.shape()));
  const bool numbers = with_type(a.dtype(), NumberOrComplexTypes{}, [&]<class T>() {
    const T *x = a.data<T>(), *y = b.data<T>();
    T* sum = out.mutable_data<T>();
    for (int64_t i = 0; i < out.elements(); ++i) sum[i] = narrow<T>(wrapping_add(widen(x[i]), widen(y[i])));
  });
  if (!numbers) return invalid_argument("{} cannot be added", to_string(a.dtype()));
  return out;
}

Result<Tensor> zeros_nested(const KernelContext& c, const Tensor& t, int depth) {
  if (!t.defined()) return Tensor();
  if (t.dtype() != DType::kVariant) return Tensor::zeros(t.dtype(), t.shape(), c.device().allocator);
  TROUPE_RETURN_IF_ERROR(check_nested(depth));
  if (t.elements() == 0) return t;
  TROUPE_ASSIGN(const TensorList* list, list_of(t));
  TensorList zeros{list->dtype, list->shape, list->most, {}};
  for (const Tensor& element : list->elements) {
    TROUPE_ASSIGN(Tensor zero, zeros_nested(c, element, depth + 1));
    zeros.elements.push_back(std::move(zero));
  }
  return list_tensor(std::move(zeros));
}

}  // namespace

Result<Tensor> add_elements(const KernelContext& c, const Tensor& a, const Tensor& b) { return add_nested(c, a, b, 1); }

Result<Tensor> zeros_like(const KernelContext& c, const Tensor& t) { return zeros_nested(c, t, 1); }

Result<const TensorList*> list_of(const Tensor& t) {
  if (t.dtype() != DType::kVariant || t.rank() != 0 || !t.data<TensorListRef>()[0])
    return invalid_argument("{} is not a list of tensors", t.str());
  return t.data<TensorListRef>()->get();
}

}  // namespace troupe
