// SPDX-License-Identifier: Apache-2.0
// What lists and arrays of tensors have in common: elements joined into one tensor, and a tensor parted into elements.
#pragma once
#include <span>
#include <vector>

#include "troupe/kernel.h"
#include "troupe/tensor_list.h"

namespace troupe {

/// A shape of which sizes may be -1; a scalar -1 is a shape of unknown rank.
Result<PartialShape> partial_shape_from(const Tensor& t);

/// The shape that all defined elements and `shape` agree on, or an error that names the two that do not.
Result<PartialShape> common_shape(std::span<const Tensor> elements, PartialShape shape);

/// Elements [n, ...] from elements of one shape; undefined ones are zeros. Errors: shapes that differ; a shape that is
/// not known (no element is defined, and `shape` leaves sizes open).
Result<Tensor> stack_elements(const KernelContext& c, std::span<const Tensor> elements, DType dtype,
                              const PartialShape& shape);
/// Views of the rows of `t`. Error: it is a scalar.
Result<std::vector<Tensor>> unstack_elements(const Tensor& t);

/// Elements one after another along their first dimension, and how long each is. Undefined ones are zeros: as long as
/// `shape` says, else as their place in `leading`, and for the rest as `shape` and the others. Errors: scalars, shapes
/// that differ in the other dimensions, undefined ones of which this does not tell the shape.
struct Joined {
  Tensor tensor;
  std::vector<int64_t> lengths;
};
Result<Joined> join_elements(const KernelContext& c, std::span<const Tensor> elements, DType dtype,
                             const PartialShape& shape, std::span<const int64_t> leading = {});
/// Room for `n` elements; new ones are undefined. Error: kResourceExhausted where they alone are more than the device
/// may hold.
template <class T> Status resize_elements(const KernelContext& c, std::vector<T>& elements, int64_t n) {
  const int64_t limit = c.device().allocator->stats().limit;
  if (limit > 0 && n > limit / static_cast<int64_t>(sizeof(T)))
    return make_error(Code::kResourceExhausted, "no memory for {} elements: the limit is {} bytes", n, limit);
  elements.resize(static_cast<size_t>(n));
  return {};
}
/// Views of consecutive rows of `t`, as many as `lengths` say. Error: they do not add up to the rows.
Result<std::vector<Tensor>> part_elements(const Tensor& t, std::span<const int64_t> lengths);

/// a + b; the other where one is undefined. Without elements any dtype is added. Errors: shapes or dtypes that differ,
/// no numbers, lists more than 1,000 deep.
Result<Tensor> add_elements(const KernelContext& c, const Tensor& a, const Tensor& b);
/// Zeros like `t`; of lists, lists of zeros; undefined of an undefined one, `t` of one without elements. Error: lists
/// more than 1,000 deep.
Result<Tensor> zeros_like(const KernelContext& c, const Tensor& t);

/// The list of a scalar kVariant. Error: it is something else, or empty.
Result<const TensorList*> list_of(const Tensor& t);

}  // namespace troupe
