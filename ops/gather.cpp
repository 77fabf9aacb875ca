// SPDX-License-Identifier: Apache-2.0
// Reading by index and its gradient: GatherV2, UnsortedSegmentSum. OneHot and TopKV2 are in top_k.cpp, GatherNd and
// ScatterNd in gather_nd.cpp.
#include <algorithm>
#include <atomic>
#include <numeric>

#include "devices/parallel.h"
#include "ops/all.h"
#include "ops/gather_gradient.h"
#include "ops/gradient_math.h"
#include "ops/index_tensors.h"
#include "ops/top_k.h"
#include "ops/type_dispatch.h"
#include "ops/wrapping.h"

namespace troupe {
namespace {

int64_t product(const Shape& s, int begin, int end) {
  int64_t n = 1;
  for (int i = begin; i < end; ++i) n *= s[i];
  return n;
}

// --- gather ---

/// Attribute batch_dims for indices of this rank; negative ones count from its end.
Result<int> batch_dims_from(int64_t batch_dims, int rank, int axis) {
  const int64_t out = batch_dims < 0 ? batch_dims + rank : batch_dims;
  if (out < 0 || out > rank) return invalid_argument("batch_dims {} of indices of rank {}", batch_dims, rank);
  if (out > axis) return invalid_argument("batch_dims {} is more than axis {}", batch_dims, axis);
  return static_cast<int>(out);
}

template <class I> class Gather final : public ComputeKernel {
 public:
  explicit Gather(const KernelInit& init) : batch_dims_(init.attrs->get_or<int64_t>("batch_dims", 0)) {}
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &indices = c.input(1);
    TROUPE_ASSIGN(const int axis, axis_from(c.input(2), x.rank()));
    TROUPE_ASSIGN(const int batch, batch_dims_from(batch_dims_, indices.rank(), axis));
    for (int i = 0; i < batch; ++i)
      if (x.shape()[i] != indices.shape()[i])
        return invalid_argument("batch sizes of {} and {} differ", x.shape().str(), indices.shape().str());
    std::vector<int64_t> sizes(x.shape().begin(), x.shape().begin() + axis);
    sizes.insert(sizes.end(), indices.shape().begin() + batch, indices.shape().end());
    sizes.insert(sizes.end(), x.shape().begin() + axis + 1, x.shape().end());
    TROUPE_ASSIGN(const Shape shape, Shape::make(sizes));
    const int64_t bound = x.shape()[axis];
    TROUPE_RETURN_IF_ERROR(check_indices(indices.values<I>(), bound));
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), shape));
    const int64_t batches = product(x.shape(), 0, batch), outer = product(x.shape(), batch, axis);
    const int64_t inner = product(x.shape(), axis + 1, x.rank());
    const int64_t n = product(indices.shape(), batch, indices.rank());
    const I* index = indices.data<I>();
    with_storage(x.dtype(), [&]<class S>() {
      const S* in = static_cast<const S*>(x.raw());
      S* out = static_cast<S*>(y.mutable_raw());
      parallel_for(c.threads(), batches * outer * n, std::max<int64_t>(kCheapGrain / std::max<int64_t>(inner, 1), 1),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t u = begin; u < end; ++u) {
                       const int64_t row = u / n, at = index[row / outer * n + u % n];
                       std::copy_n(in + (row * bound + at) * inner, inner, out + u * inner);
                     }
                   });
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const int64_t batch_dims_;
};

Status gather_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape x, c.with_rank_at_least(0, 1));
  const PartialShape& indices = c.input(1);
  const auto at = c.constant_input(2);
  if (!x.has_rank() || !indices.has_rank() || !at) return {};
  TROUPE_ASSIGN(const int axis, axis_from(*at, x.rank()));
  TROUPE_ASSIGN(const int batch, batch_dims_from(c.attr<int64_t>("batch_dims"), indices.rank(), axis));
  for (int i = 0; i < batch; ++i)
    if (x[i] >= 0 && indices[i] >= 0 && x[i] != indices[i])
      return invalid_argument("batch sizes of {} and {} differ", x.str(), indices.str());
  std::vector<int64_t> sizes;
  for (int i = 0; i < axis; ++i) sizes.push_back(x[i]);
  for (int i = batch; i < indices.rank(); ++i) sizes.push_back(indices[i]);
  for (int i = axis + 1; i < x.rank(); ++i) sizes.push_back(x[i]);
  TROUPE_ASSIGN(const PartialShape out, PartialShape::make(sizes));
  c.set_output(0, out);
  return {};
}

Status gather_v2_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const Node& axis_node = *c.input(2).node;
  const Tensor* constant = axis_node.op().name() == "Const" ? axis_node.attrs().get<Tensor>("value") : nullptr;
  const int rank = c.input(0).shape().rank(), index_rank = c.input(1).shape().rank();
  if (!constant || rank < 0 || index_rank < 0)
    return invalid_argument("the gradient needs a constant axis and known ranks of params and indices");
  TROUPE_ASSIGN(const int axis, axis_from(*constant, rank));
  TROUPE_ASSIGN(const int batch, batch_dims_from(c.node().attrs().get_or<int64_t>("batch_dims", 0), index_rank, axis));
  c.set_dx(0, gather_gradient(c, c.input(0), c.input(1), c.dy(0), axis, batch));
  return {};
}

template <class I> class UnsortedSegmentSum final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &ids = c.input(1);
    TROUPE_ASSIGN(const int64_t segments, int_scalar(c.input(2), "num_segments"));
    if (segments < 0) return invalid_argument("{} segments", segments);
    if (ids.rank() > x.rank() || !std::equal(ids.shape().begin(), ids.shape().end(), x.shape().begin()))
      return invalid_argument("segment_ids of shape {} do not lead shape {}", ids.shape().str(), x.shape().str());
    std::vector<int64_t> sizes = {segments};
    sizes.insert(sizes.end(), x.shape().begin() + ids.rank(), x.shape().end());
    TROUPE_ASSIGN(const Shape shape, Shape::make(sizes));
    for (const I id : ids.values<I>())  // negative ones are dropped, as in TensorFlow
      if (static_cast<int64_t>(id) >= segments)
        return invalid_argument("segment id {} is not below num_segments {}", static_cast<int64_t>(id), segments);
    TROUPE_ASSIGN(Tensor y, Tensor::zeros(x.dtype(), shape, c.device().allocator));
    const int64_t inner = product(x.shape(), ids.rank(), x.rank()), n = ids.elements();
    const I* id = ids.data<I>();
    with_type(x.dtype(), NumberOrComplexTypes{}, [&]<class T>() {
      const T* in = x.data<T>();
      T* out = y.mutable_data<T>();
      // Threads take columns, so that each sum is made in the order of the rows.
      parallel_for(c.threads(), inner, std::max<int64_t>(kCheapGrain / std::max<int64_t>(n, 1), 16),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t r = 0; r < n; ++r) {
                       if (id[r] < 0) continue;
                       T* to = out + static_cast<int64_t>(id[r]) * inner;
                       for (int64_t k = begin; k < end; ++k)
                         to[k] = narrow<T>(wrapping_add(widen(to[k]), widen(in[r * inner + k])));
                     }
                   });
    });
    c.set_output(0, std::move(y));
    return {};
  }
};

Status segment_shape(ShapeContext& c) {
  const PartialShape &x = c.input(0), &ids = c.input(1);
  if (!x.has_rank() || !ids.has_rank()) return {};
  if (ids.rank() > x.rank())
    return invalid_argument("segment_ids of shape {} do not lead shape {}", ids.str(), x.str());
  PartialShape out{-1};
  if (const auto n = c.constant_input(2)) {
    TROUPE_ASSIGN(const int64_t segments, int_scalar(*n, "num_segments"));
    if (segments < 0) return invalid_argument("{} segments", segments);
    out.set(0, segments);
  }
  if (x.rank() - ids.rank() + 1 > kMaxRank) return invalid_argument("{} has the highest rank already", x.str());
  for (int i = ids.rank(); i < x.rank(); ++i) out.push_back(x[i]);
  c.set_output(0, out);
  return {};
}

/// Rows of dy by segment; rows that were dropped get zeros.
Status segment_gradient(GradientContext& c) {
  const Output dy = c.dy(0), ids = c.input(1);
  if (!dy) return {};
  const Output zero = scalar_like(c, ids.dtype(), 0), axis = c.constant(Tensor::scalar<int32_t>(0));
  const Output rows = c.op("GatherV2", {dy, c.op("Maximum", {ids, zero}), axis});
  Output kept = c.op("GreaterEqual", {ids, zero});
  const int rank = rows && rows.shape().has_rank() ? rows.shape().rank() : -1;
  if (rank < 0 || !ids.shape().has_rank())
    return invalid_argument("the gradient needs known ranks of data and segment_ids");
  for (int i = ids.shape().rank(); i < rank; ++i)
    kept = c.op("ExpandDims", {kept, c.constant(Tensor::scalar<int32_t>(-1))});
  c.set_dx(0, c.op("SelectV2", {kept, rows, scalar_like(c, dy.dtype(), 0)}));
  return {};
}

void add_gathers(OpRegistry& ops, KernelRegistry& kernels) {
  const std::string indices = type_attr("Tindices", IndexTypes{});
  ops.add(
      OpDef("GatherV2")
          .input("params: Tparams")
          .input("indices: Tindices")
          .input("axis: Taxis")
          .output("output: Tparams")
          .attr("batch_dims: int = 0")
          .attr("Tparams: type")
          .attr(indices)
          .attr(type_attr("Taxis", IndexTypes{}))
          .shape(gather_shape)
          .doc("The slices of params along `axis` that the indices name. The first batch_dims dimensions of both go "
               "together. Error for an index out of range."),
      gradient(gather_v2_gradient));
  add_cpu_kernels<Gather>(kernels, "GatherV2", IndexTypes{}, "Tindices");
  ops.add(
      OpDef("UnsortedSegmentSum")
          .input("data: T")
          .input("segment_ids: Tindices")
          .input("num_segments: Tnumsegments")
          .output("output: T")
          .attr(type_attr("T", NumberOrComplexTypes{}))
          .attr(indices)
          .attr(type_attr("Tnumsegments", IndexTypes{}, "int32"))
          .shape(segment_shape)
          .doc("Row i is the sum of the rows of data whose segment id is i; negative ids are dropped. Error for an id "
               "beyond num_segments."),
      gradient(segment_gradient));
  add_cpu_kernels<UnsortedSegmentSum>(kernels, "UnsortedSegmentSum", IndexTypes{}, "Tindices");
}

}  // namespace

void register_gather_ops(OpRegistry& ops, KernelRegistry& kernels) {
  add_gathers(ops, kernels);
  register_top_k_ops(ops, kernels);
}

}  // namespace troupe
