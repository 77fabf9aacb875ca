// SPDX-License-Identifier: Apache-2.0
// Reading parts of a variable at its host, without sharing the whole: ResourceGather, ResourceGatherNd.
#include <algorithm>

#include "containers/container.h"
#include "ops/array/nd_index.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/resource_kernel.h"
#include "ops/parts/type_dispatch.h"
#include "ops/state/register.h"
#include "ops/state/variable_shape.h"

namespace troupe {
namespace {

int64_t product(std::span<const int64_t> dims) {
  int64_t n = 1;
  for (const int64_t d : dims) n *= d;
  return n;
}

/// Slices of `x`, of `inner` elements each, at these offsets one after the other.
Result<Tensor> slices(const Tensor& x, std::span<const int64_t> offsets, int64_t inner, const Shape& shape,
                      const std::shared_ptr<Allocator>& allocator) {
  TROUPE_ASSIGN(Tensor y, Tensor::make(x.dtype(), shape, allocator));
  with_storage(x.dtype(), [&]<class S>() {
    const S* in = static_cast<const S*>(x.raw());
    S* out = static_cast<S*>(y.mutable_raw());
    for (const int64_t at : offsets) out = std::copy_n(in + at * inner, inner, out);
  });
  return y;
}

/// Rows by index, or slices by rows of indices.
template <bool kNd> class ResourceGather final : public ResourceKernel {
 public:
  explicit ResourceGather(const KernelInit& init) : batch_dims_(init.attrs->get_or<int64_t>("batch_dims", 0)) {}
  void execute(Resource& resource, ResourceRequest request) override {
    if (Container* container = core_as<Container>(resource, request, "variable"))
      request.reply(one_output(gather(*container, request)));
  }

 private:
  Result<Tensor> gather(Container& container, const ResourceRequest& request) const {
    TROUPE_ASSIGN(const Tensor x, container.read(request.handle()));
    const Tensor& indices = request.inputs[1];
    const Shape& s = x.shape();
    if (!kNd && (batch_dims_ < 0 || batch_dims_ > indices.rank() || batch_dims_ >= s.rank()))
      return invalid_argument("batch_dims {} of variable '{}' {} by indices {}", batch_dims_, request.handle().name,
                              s.str(), indices.shape().str());
    const int batch = kNd ? 0 : static_cast<int>(batch_dims_);
    for (int i = 0; i < batch; ++i)
      if (s[i] != indices.shape()[i])
        return invalid_argument("batch sizes of {} and {} differ", s.str(), indices.shape().str());
    TROUPE_ASSIGN(std::vector<int64_t> offsets, kNd ? nd_slices(indices, s) : row_slices(indices, s[batch]));
    const int depth = kNd ? static_cast<int>(indices.dim(-1)) : batch + 1;
    std::vector<int64_t> sizes(indices.shape().begin(), indices.shape().end() - (kNd ? 1 : 0));
    sizes.insert(sizes.end(), s.begin() + depth, s.end());
    TROUPE_ASSIGN(const Shape shape, Shape::make(sizes));
    const int64_t batches = product(s.dims().first(static_cast<size_t>(batch)));
    if (const int64_t each = batches ? static_cast<int64_t>(offsets.size()) / batches : 0; batch > 0)
      for (size_t i = 0; i < offsets.size(); ++i) offsets[i] += static_cast<int64_t>(i) / each * s[batch];
    return slices(x, offsets, product(s.dims().subspan(static_cast<size_t>(depth))), shape, request.allocator);
  }

  const int64_t batch_dims_;
};

Status resource_gather_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape x, variable_shape(c, 0, c.attr<DType>("dtype")));
  const PartialShape& indices = c.input(1);
  if (!x.has_rank() || !indices.has_rank()) return {};
  const int64_t batch = c.attr<int64_t>("batch_dims");
  if (batch < 0 || batch > indices.rank() || batch >= x.rank())
    return invalid_argument("batch_dims {} of a variable {} by indices {}", batch, x.str(), indices.str());
  std::vector<int64_t> sizes(indices.dims().begin(), indices.dims().end());
  sizes.insert(sizes.end(), x.dims().begin() + batch + 1, x.dims().end());
  TROUPE_ASSIGN(PartialShape out, PartialShape::make(sizes));
  c.set_output(0, std::move(out));
  return {};
}

Status resource_gather_nd_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape x, variable_shape(c, 0, c.attr<DType>("dtype")));
  TROUPE_ASSIGN(const PartialShape indices, c.with_rank_at_least(1, 1));
  if (!x.has_rank() || !indices.has_rank() || indices.dim(-1) < 0) return {};
  if (indices.dim(-1) > x.rank())
    return invalid_argument("indices of shape {} into a variable {}", indices.str(), x.str());
  std::vector<int64_t> sizes(indices.dims().begin(), indices.dims().end() - 1);
  sizes.insert(sizes.end(), x.dims().begin() + indices.dim(-1), x.dims().end());
  TROUPE_ASSIGN(PartialShape out, PartialShape::make(sizes));
  c.set_output(0, std::move(out));
  return {};
}

/// Rows of dy are summed where they came from.
Status resource_gather_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  if (c.node().attrs().get_or<int64_t>("batch_dims", 0) != 0)
    return make_error(Code::kUnimplemented, "gradient of ResourceGather with batch_dims");
  const Output zero = c.constant(Tensor::of<int32_t>({0})), one = c.constant(Tensor::of<int32_t>({1}));
  const Output rows = c.op("Squeeze", {c.op("Slice", {c.op("VariableShape", {c.input(0)}), zero, one})});
  c.set_dx(0, c.op("UnsortedSegmentSum", {c.dy(0), c.input(1), rows}));
  return {};
}

Status resource_gather_nd_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  const Output shape = c.op("VariableShape", {c.input(0)}, {{"out_type", c.input(1).dtype()}});
  c.set_dx(0, c.op("ScatterNd", {c.input(1), c.dy(0), shape}));
  return {};
}

}  // namespace

void register_resource_gather_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const std::string indices = type_attr("Tindices", IndexTypes{});
  ops.add(OpDef("ResourceGather")
              .input("resource: resource")
              .input("indices: Tindices")
              .output("output: dtype")
              .attr("batch_dims: int = 0")
              .attr("validate_indices: bool = true")
              .attr("dtype: type")
              .attr(indices)
              .doc("Rows of the variable: output[..., :] = variable[indices[...], :], read at its host. The first "
                   "`batch_dims` dimensions are those of the indices too. An index out of range is an error.")
              .shape(resource_gather_shape)
              .stateful(),
          gradient(resource_gather_gradient));
  kernels.add<ResourceGather<false>>("ResourceGather", DeviceKind::kCpu, {});
  ops.add(OpDef("ResourceGatherNd")
              .input("resource: resource")
              .input("indices: Tindices")
              .output("output: dtype")
              .attr("dtype: type")
              .attr(indices)
              .doc("Slices of the variable by the last dimension of `indices`, as GatherNd, read at its host. An index "
                   "out of range is an error.")
              .shape(resource_gather_nd_shape)
              .stateful(),
          gradient(resource_gather_nd_gradient));
  kernels.add<ResourceGather<true>>("ResourceGatherNd", DeviceKind::kCpu, {});
}

}  // namespace troupe
