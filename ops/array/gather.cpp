// SPDX-License-Identifier: Apache-2.0
// Reading by index: Gather, GatherV2. OneHot and TopKV2 are in top_k.cpp, GatherNd and ScatterNd in gather_nd.cpp.
#include "ops/array/gather.h"

#include <algorithm>

#include "devices/parallel.h"
#include "ops/array/gather_gradient.h"
#include "ops/array/nd_index.h"
#include "ops/array/register.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

// --- gather ---

/// Attribute batch_dims for indices of this rank; negative ones count from its end.
Result<int> batch_dims_from(int64_t batch_dims, int rank, int axis) {
  const int64_t out = batch_dims < 0 ? batch_dims + rank : batch_dims;
  if (out < 0 || out > rank) return invalid_argument("batch_dims {} of indices of rank {}", batch_dims, rank);
  if (out > axis) return invalid_argument("batch_dims {} is more than axis {}", batch_dims, axis);
  return static_cast<int>(out);
}

/// Adds the sizes [begin, end) of a shape.
void push_sizes(const Shape& shape, int begin, int end, std::vector<int64_t>& sizes) {
  sizes.insert(sizes.end(), shape.begin() + begin, shape.begin() + end);
}

}  // namespace

Result<GatherPlan> plan_gather(const Shape& x, const Shape& indices, int axis, int64_t batch_dims) {
  TROUPE_ASSIGN(const int batch, batch_dims_from(batch_dims, indices.rank(), axis));
  for (int i = 0; i < batch; ++i)
    if (x[i] != indices[i]) return invalid_argument("batch sizes of {} and {} differ", x.str(), indices.str());
  std::vector<int64_t> sizes;
  push_sizes(x, 0, axis, sizes);
  push_sizes(indices, batch, indices.rank(), sizes);
  push_sizes(x, axis + 1, x.rank(), sizes);
  GatherPlan plan;
  TROUPE_ASSIGN(plan.shape, Shape::make(sizes));
  plan.batches = sizes_product(x, 0, batch);
  plan.outer = sizes_product(x, batch, axis);
  plan.count = sizes_product(indices, batch, indices.rank());
  plan.inner = sizes_product(x, axis + 1, x.rank());
  plan.bounds = {x[axis]};
  return plan;
}

Result<GatherPlan> plan_gather_nd(const Shape& x, const Shape& indices) {
  TROUPE_ASSIGN(const PartialShape result, nd_shape(indices, x));
  GatherPlan plan;
  TROUPE_ASSIGN(plan.shape, Shape::make(result.dims()));
  const auto depth = static_cast<int>(indices.dim(-1));
  plan.count = sizes_product(indices, 0, indices.rank() - 1);
  plan.inner = sizes_product(x, depth, x.rank());
  push_sizes(x, 0, depth, plan.bounds);
  return plan;
}

namespace {

template <class I> class Gather final : public ComputeKernel {
 public:
  explicit Gather(const KernelInit& init) : batch_dims_(init.attrs->get_or<int64_t>("batch_dims", 0)) {}
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &indices = c.input(1);
    TROUPE_ASSIGN(const int axis, c.num_inputs() == 3 ? axis_from(c.input(2), x.rank()) : axis_from(0, x.rank()));
    TROUPE_ASSIGN(const GatherPlan plan, plan_gather(x.shape(), indices.shape(), axis, batch_dims_));
    const int64_t bound = plan.bounds[0], outer = plan.outer, n = plan.count, inner = plan.inner;
    TROUPE_RETURN_IF_ERROR(check_indices(indices.values<I>(), bound));
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), plan.shape));
    const I* index = indices.data<I>();
    with_storage(x.dtype(), [&]<class S>() {
      const S* in = static_cast<const S*>(x.raw());
      S* out = static_cast<S*>(y.mutable_raw());
      parallel_for(c.threads(), plan.batches * outer * n,
                   std::max<int64_t>(kCheapGrain / std::max<int64_t>(inner, 1), 1), [&](int64_t begin, int64_t end) {
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

Status rows_gathered_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape x, c.with_rank_at_least(0, 1));
  const PartialShape& indices = c.input(1);
  if (!x.has_rank() || !indices.has_rank()) return {};
  std::vector<int64_t> sizes(indices.dims().begin(), indices.dims().end());
  sizes.insert(sizes.end(), x.dims().begin() + 1, x.dims().end());
  TROUPE_ASSIGN(const PartialShape out, PartialShape::make(sizes));
  c.set_output(0, out);
  return {};
}

Status gather_rows_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  if (!c.input(0).shape().has_rank() || !c.input(1).shape().has_rank())
    return invalid_argument("the gradient needs the known ranks of params and indices");
  c.set_dx(0, gather_gradient(c, c.input(0), c.input(1), c.dy(0), 0, 0));
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
  c.set_dx(0, gather_gradient(c, c.input(0), int32_or_int64(c, c.input(1)), c.dy(0), axis, batch));
  return {};
}

void add_gathers(OpRegistry& ops, KernelRegistry& kernels) {
  using NarrowOrIndexTypes = TypeList<int16_t, int32_t, int64_t>;
  ops.add(
      OpDef("GatherV2")
          .input("params: Tparams")
          .input("indices: Tindices")
          .input("axis: Taxis")
          .output("output: Tparams")
          .attr("batch_dims: int = 0")
          .attr("Tparams: type")
          .attr(type_attr("Tindices", NarrowOrIndexTypes{}))
          .attr(type_attr("Taxis", IndexTypes{}))
          .shape(gather_shape)
          .cost(pick_cost)
          .doc("The slices of params along `axis` that the indices name. The first batch_dims dimensions of both go "
               "together. Error for an index out of range."),
      gradient(gather_v2_gradient));
  ops.add(OpDef("Gather")
              .input("params: Tparams")
              .input("indices: Tindices")
              .output("output: Tparams")
              .attr("validate_indices: bool = true")
              .attr("Tparams: type")
              .attr(type_attr("Tindices", IndexTypes{}))
              .shape(rows_gathered_shape)
              .cost(pick_cost)
              .doc("The rows of params that the indices name. Error for an index out of range, whatever "
                   "validate_indices."),
          gradient(gather_rows_gradient));
  add_cpu_kernels<Gather>(kernels, "Gather", IndexTypes{}, "Tindices");
  add_cpu_kernels<Gather>(kernels, "GatherV2", NarrowOrIndexTypes{}, "Tindices");
}

}  // namespace

void register_gather_ops(OpRegistry& ops, KernelRegistry& kernels) { add_gathers(ops, kernels); }

}  // namespace troupe
