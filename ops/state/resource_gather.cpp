// SPDX-License-Identifier: Apache-2.0
// Reading parts of a variable at its host, without sharing the whole: ResourceGather, ResourceGatherNd.
#include <algorithm>

#include "containers/container.h"
#include "ops/array/gather.h"
#include "ops/array/nd_index.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/resource_kernel.h"
#include "ops/parts/type_dispatch.h"
#include "ops/parts/variable_memory.h"
#include "ops/state/register.h"
#include "ops/state/variable_shape.h"

namespace troupe {
namespace {

/// Which slices of a variable of this shape, by the rules of the op.
template <bool kNd>
Result<GatherPlan> plan_of(const ResourceHandle& handle, const Shape& x, const Shape& indices, int64_t batch_dims) {
  if constexpr (kNd) {
    return plan_gather_nd(x, indices);
  } else {
    if (batch_dims < 0 || batch_dims > indices.rank() || batch_dims >= x.rank())
      return invalid_argument("batch_dims {} of variable '{}' {} by indices {}", batch_dims, handle.name, x.str(),
                              indices.str());
    return plan_gather(x, indices, static_cast<int>(batch_dims), batch_dims);
  }
}

/// Rows by index, or slices by rows of indices.
template <bool kNd> class ResourceGather final : public AnsweringKernel {
 public:
  explicit ResourceGather(const KernelInit& init) : batch_dims_(init.attrs->get_or<int64_t>("batch_dims", 0)) {}
  Result<std::vector<Tensor>> answer(Resource& resource, ResourceRequest& request) override {
    TROUPE_ASSIGN(Container* const container, core_of<Container>(resource, request, "variable"));
    return one_output(gather(*container, request));
  }

 private:
  Result<Tensor> gather(Container& container, const ResourceRequest& request) const {
    TROUPE_ASSIGN(const Tensor x, container.read(request.handle()));
    const Tensor& indices = request.inputs[1];
    TROUPE_ASSIGN(const GatherPlan plan, plan_of<kNd>(request.handle(), x.shape(), indices.shape(), batch_dims_));
    TROUPE_ASSIGN(const std::vector<int64_t> offsets,
                  kNd ? nd_slices(indices, x.shape()) : row_slices(indices, plan.bounds[0]));
    TROUPE_ASSIGN(Tensor y, Tensor::make(x.dtype(), plan.shape, request.allocator));
    with_storage(x.dtype(), [&]<class S>() {
      S* out = static_cast<S*>(y.mutable_raw());
      for (size_t i = 0; i < offsets.size(); ++i) {
        const int64_t batch = static_cast<int64_t>(i) / std::max<int64_t>(plan.count, 1);
        const S* in = static_cast<const S*>(x.raw()) + batch * (kNd ? 0 : plan.bounds[0]) * plan.inner;
        out = std::copy_n(in + offsets[i] * plan.inner, plan.inner, out);
      }
    });
    return y;
  }

  const int64_t batch_dims_;
};

/// The same of a variable in a GPU's memory, in the order of its stream.
template <bool kNd> class GpuResourceGather final : public AnsweringKernel {
 public:
  GpuResourceGather(const KernelInit& init, LaunchGather launch)
      : launch_(launch), batch_dims_(init.attrs->get_or<int64_t>("batch_dims", 0)) {}
  Result<std::vector<Tensor>> answer(Resource& resource, ResourceRequest& request) override {
    TROUPE_ASSIGN(Container* const container, core_of<Container>(resource, request, "variable"));
    return one_output(gather(*container, request));
  }

 private:
  Result<Tensor> gather(Container& container, const ResourceRequest& request) const {
    if (!request.gpu) return make_error(Code::kInternal, "no GPU asks for what a GPU does");
    TROUPE_RETURN_IF_ERROR(bring_to_gpu(container, request.handle(), request.gpu));
    TROUPE_ASSIGN(const Tensor x, container.read(request.handle(), request.allocator->space()));
    const Tensor& indices = request.inputs[1];
    TROUPE_ASSIGN(const GatherPlan plan, plan_of<kNd>(request.handle(), x.shape(), indices.shape(), batch_dims_));
    TROUPE_ASSIGN(Tensor y, Tensor::make(x.dtype(), plan.shape, request.allocator));
    const gpu::Access accesses[] = {
        {x.address(), x.bytes(), false}, {indices.address(), indices.bytes(), false}, {y.address(), y.bytes(), true}};
    request.gpu->stream.uses(accesses);
    const Status launched = launch_({*request.gpu, plan, y, x, indices});
    request.gpu->stream.uses({});
    TROUPE_RETURN_IF_ERROR(launched);
    return y;
  }

  const LaunchGather launch_;
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
              .cost(pick_cost)
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
              .cost(pick_cost)
              .doc("Slices of the variable by the last dimension of `indices`, as GatherNd, read at its host. An index "
                   "out of range is an error.")
              .shape(resource_gather_nd_shape)
              .stateful(),
          gradient(resource_gather_nd_gradient));
  kernels.add<ResourceGather<true>>("ResourceGatherNd", DeviceKind::kCpu, {});
}

void register_resource_gather_gpu(KernelRegistry& kernels, LaunchGather launch) {
  const auto add = [&]<bool kNd>(const char* op) {
    kernels.add(op, DeviceKind::kCuda, gpu_variables("dtype"),
                [launch](const KernelInit& init) -> Result<std::unique_ptr<ResourceKernel>> {
                  return std::unique_ptr<ResourceKernel>(new GpuResourceGather<kNd>(init, launch));
                });
  };
  add.template operator()<false>("ResourceGather");
  add.template operator()<true>("ResourceGatherNd");
}

}  // namespace troupe
