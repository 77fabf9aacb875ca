// SPDX-License-Identifier: Apache-2.0
// The places of a sparse tensor's values sorted, or those in another shape: SparseReorder, SparseReshape.
#include <algorithm>
#include <numeric>

#include "base/join.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"
#include "ops/sparse/register.h"

namespace troupe {
namespace {

/// Errors: indices that are no matrix with a column for each of `rank` dimensions.
Status check_places(const Tensor& indices, int64_t rank) {
  if (indices.rank() == 2 && indices.shape()[1] == rank) return {};
  return invalid_argument("input_indices of shape {} in {} dimensions", indices.shape().str(), rank);
}

class SparseReorder final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor &indices = c.input(0), &values = c.input(1);
    TROUPE_ASSIGN(const auto sizes, int_values(c.input(2), "input_shape"));
    const auto rank = static_cast<int64_t>(sizes.size());
    TROUPE_RETURN_IF_ERROR(check_places(indices, rank));
    if (values.rank() != 1 || values.elements() != indices.shape()[0])
      return invalid_argument("input_values of shape {} for indices of shape {}", values.shape().str(),
                              indices.shape().str());
    const int64_t* at = indices.data<int64_t>();
    std::vector<int64_t> order(static_cast<size_t>(values.elements()));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
      return std::lexicographical_compare(at + a * rank, at + (a + 1) * rank, at + b * rank, at + (b + 1) * rank);
    });
    TROUPE_ASSIGN(Tensor places, c.allocate(DType::kInt64, indices.shape()));
    TROUPE_ASSIGN(Tensor sorted, c.allocate(values.dtype(), values.shape()));
    int64_t* to = places.mutable_data<int64_t>();
    for (int64_t i : order) to = std::copy_n(at + i * rank, rank, to);
    with_storage(values.dtype(), [&]<class S>() {
      S* out = static_cast<S*>(sorted.mutable_raw());
      for (int64_t i : order) *out++ = static_cast<const S*>(values.raw())[i];
    });
    c.set_output(0, std::move(places));
    c.set_output(1, std::move(sorted));
    return {};
  }
};

Status reorder_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape indices, c.with_rank(0, 2));
  TROUPE_ASSIGN(const PartialShape values, c.with_rank(1, 1));
  TROUPE_ASSIGN(const PartialShape sizes, c.with_rank(2, 1));
  const PartialShape told{values.has_rank() ? values[0] : -1, sizes.has_rank() ? sizes[0] : -1};
  TROUPE_ASSIGN(const PartialShape places, PartialShape::merge(indices, told));
  c.set_output(0, places);
  c.set_output(1, PartialShape{places[0]});
  return {};
}

/// The numbers of the values go the same way; turned round they say where each value went.
Status reorder_gradient(GradientContext& c) {
  if (!c.dy(1)) return {};
  const Output zero = c.constant(Tensor::scalar<int32_t>(0)), one = c.constant(Tensor::scalar<int32_t>(1));
  const Output numbers = c.op("Range", {zero, c.op("Size", {c.input(1)}), one});
  const auto sorted = c.ops("SparseReorder", {c.input(0), numbers, c.input(2)});
  if (sorted.size() == 2) c.set_dx(1, c.op("GatherV2", {c.dy(1), c.op("InvertPermutation", {sorted[1]}), zero}));
  return {};
}

/// The sizes asked for, an open one (-1) filled in so that there are `elements`.
Result<Shape> open_shape(std::vector<int64_t> sizes, int64_t elements) {
  int64_t known = 1, open = -1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == -1 && open >= 0) return invalid_argument("new_shape [{}] has two open sizes", join(sizes));
    if (sizes[i] == -1) open = static_cast<int64_t>(i);
    else if (sizes[i] < 0 || __builtin_mul_overflow(known, sizes[i], &known))
      return invalid_argument("new_shape [{}] is not a shape", join(sizes));
  }
  if (open >= 0) sizes[open] = known > 0 ? elements / known : 0;
  TROUPE_ASSIGN(const Shape shape, Shape::make(sizes));
  if (shape.elements() != elements) return invalid_argument("{} elements do not fit {}", elements, shape.str());
  return shape;
}

class SparseReshape final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor& indices = c.input(0);
    TROUPE_ASSIGN(const Shape from, shape_from(c.input(1), "input_shape"));
    TROUPE_ASSIGN(const auto wanted, int_values(c.input(2), "new_shape"));
    TROUPE_ASSIGN(const Shape to, open_shape(wanted, from.elements()));
    TROUPE_RETURN_IF_ERROR(check_places(indices, from.rank()));
    const int64_t n = indices.shape()[0];
    TROUPE_ASSIGN(const Shape shape, Shape::make(std::vector<int64_t>{n, to.rank()}));
    TROUPE_ASSIGN(Tensor places, c.allocate(DType::kInt64, shape));
    const int64_t* at = indices.data<int64_t>();
    int64_t* out = places.mutable_data<int64_t>();
    for (int64_t i = 0; i < n; ++i) {
      int64_t flat = 0;
      for (int d = 0; d < from.rank(); ++d) {
        const int64_t index = at[i * from.rank() + d];
        if (index < 0 || index >= from[d])
          return invalid_argument("index {} at [{},{}] is not in [0, {})", index, i, d, from[d]);
        flat = flat * from[d] + index;
      }
      for (int d = to.rank() - 1; d >= 0; --d) {
        out[i * to.rank() + d] = flat % to[d];
        flat /= to[d];
      }
    }
    c.set_output(0, std::move(places));
    c.set_output(1, Tensor::of<int64_t>(to.dims()));
    return {};
  }
};

Status sparse_reshape_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape indices, c.with_rank(0, 2));
  TROUPE_ASSIGN(const PartialShape from, c.with_rank(1, 1));
  TROUPE_ASSIGN(const PartialShape to, c.with_rank(2, 1));
  TROUPE_ASSIGN(const PartialShape places,
                PartialShape::merge(indices, PartialShape{-1, from.has_rank() ? from[0] : -1}));
  const int64_t rank = to.has_rank() ? to[0] : -1;
  c.set_output(0, PartialShape{places[0], rank});
  c.set_output(1, PartialShape{rank});
  return {};
}

}  // namespace

void register_sparse_order_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("SparseReorder")
              .input("input_indices: int64")
              .input("input_values: T")
              .input("input_shape: int64")
              .output("output_indices: int64")
              .output("output_values: T")
              .attr("T: type")
              .shape(reorder_shape)
              .doc("The values of a sparse tensor in row-major order of their places."),
          gradient(reorder_gradient));
  kernels.add<SparseReorder>("SparseReorder", DeviceKind::kCpu, {});
  ops.add(
      OpDef("SparseReshape")
          .input("input_indices: int64")
          .input("input_shape: int64")
          .input("new_shape: int64")
          .output("output_indices: int64")
          .output("output_shape: int64")
          .shape(sparse_reshape_shape)
          .doc("The places of a sparse tensor's values when it takes new_shape, one of whose sizes may be -1. Error "
               "for a place outside, and for a shape of more or fewer elements."),
      not_differentiable("it moves indices"));
  kernels.add<SparseReshape>("SparseReshape", DeviceKind::kCpu, {});
}

}  // namespace troupe
