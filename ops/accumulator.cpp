// SPDX-License-Identifier: Apache-2.0
// Gradient accumulators: ResourceConditionalAccumulator makes the handle; ResourceAccumulatorApplyGradient,
// -TakeGradient, -SetGlobalStep and -NumAccumulated run at the accumulator's host.
#include "containers/gradient_accumulator.h"
#include "ops/all.h"
#include "ops/resource_kernel.h"
#include "ops/type_dispatch.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

Result<std::unique_ptr<Kernel>> make_accumulator_handle(const KernelInit& init) {
  ResourceHandle handle = make_handle(init, "accumulator");
  handle.dtype = init.attr<DType>("dtype");
  handle.shape = init.attr<PartialShape>("shape");
  const auto& reduction = init.attr<std::string>("reduction_type");
  handle.signature =
      fmt::format("ResourceConditionalAccumulator {}{} {}", to_string(handle.dtype), handle.shape.str(), reduction);
  handle.factory = [name = handle.name, dtype = handle.dtype, shape = handle.shape, sum = reduction == "SUM"] {
    using Reduction = GradientAccumulator::Reduction;
    return GradientAccumulator::make(name, dtype, shape, sum ? Reduction::kSum : Reduction::kMean);
  };
  return std::unique_ptr<Kernel>(std::make_unique<HandleKernel>(std::move(handle)));
}

class AccumulatorKernel : public ResourceKernel {
 public:
  void execute(Resource& resource, ResourceRequest request) final {
    if (auto* accumulator = core_as<GradientAccumulator>(resource, request, "gradient accumulator"))
      run(*accumulator, request);
  }

 private:
  virtual void run(GradientAccumulator& accumulator, ResourceRequest& request) = 0;
};

/// Input i of the request as a scalar of T. Error: it is none.
template <class T> Result<int64_t> scalar_input(const ResourceRequest& request, int i) {
  const Tensor& t = request.inputs[i];
  if (t.dtype() != dtype_of<T> || t.elements() != 1)
    return invalid_argument("input {} must be a scalar {}, got {}", i, to_string(dtype_of<T>), t.str());
  return static_cast<int64_t>(t.data<T>()[0]);
}

class ApplyGradientKernel final : public AccumulatorKernel {
 public:
  explicit ApplyGradientKernel(const KernelInit& init) : replica_(init.attr<int64_t>("replica")) {}

 private:
  void run(GradientAccumulator& accumulator, ResourceRequest& request) override {
    const auto step = scalar_input<int64_t>(request, 1);
    request.reply(no_output(step.ok() ? accumulator.apply_gradient(*step, std::move(request.inputs[2]), replica_,
                                                                   std::move(request.allocator))
                                      : Status(step.error())));
  }
  const int64_t replica_;
};

class TakeGradientKernel final : public AccumulatorKernel {
 public:
  explicit TakeGradientKernel(const KernelInit& init) : dtype_(init.attr<DType>("dtype")) {}

 private:
  void run(GradientAccumulator& accumulator, ResourceRequest& request) override {
    const auto required = scalar_input<int32_t>(request, 1);
    if (!required.ok()) return request.reply(required.error());
    if (accumulator.dtype() != dtype_)
      return request.reply(invalid_argument("the accumulator holds {}, the node takes {}",
                                            to_string(accumulator.dtype()), to_string(dtype_)));
    accumulator.take_gradient(*required, std::move(request.reply));
  }
  const DType dtype_;
};

class SetGlobalStepKernel final : public AccumulatorKernel {
  void run(GradientAccumulator& accumulator, ResourceRequest& request) override {
    const auto step = scalar_input<int64_t>(request, 1);
    if (!step.ok()) return request.reply(step.error());
    accumulator.set_global_step(*step);
    request.reply(std::vector<Tensor>());
  }
};

class NumAccumulatedKernel final : public AccumulatorKernel {
  void run(GradientAccumulator& accumulator, ResourceRequest& request) override {
    request.reply(one_output(Tensor::scalar(static_cast<int32_t>(accumulator.num_accumulated()))));
  }
};

/// Shape of the gradients of the accumulator that input 0 comes from.
PartialShape gradient_shape(const ShapeContext& c) {
  const Node* node = c.source(0).node;
  const bool known = node && node->op().name() == "ResourceConditionalAccumulator";
  return known ? *node->attrs().get<PartialShape>("shape") : PartialShape::unknown();
}

Status apply_gradient_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 0));
  if (const PartialShape shape = gradient_shape(c); !shape.compatible(c.input(2)))
    return invalid_argument("the accumulator is for gradients of shape {}, got {}", shape.str(), c.input(2).str());
  return {};
}

Status take_gradient_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 0));
  c.set_output(0, gradient_shape(c));
  return {};
}

Status set_global_step_shape(ShapeContext& c) { return c.with_rank(1, 0).status(); }

}  // namespace

void register_accumulator_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const char* no_value = "it has no output; what it adds is taken by another node";
  ops.add(
      OpDef("ResourceConditionalAccumulator")
          .output("handle: resource")
          .attr(type_attr("dtype", FloatTypes{}))
          .attr("shape: shape")
          .attr("container: string = ''")
          .attr("shared_name: string = ''")
          .attr("reduction_type: {'MEAN', 'SUM'} = 'MEAN'")
          .doc("A handle to an accumulator of gradients of `dtype` and `shape`, which gives their mean or sum. Nodes "
               "of the same `shared_name` (the node's name when empty) and `container` share one.")
          .shape(scalar_shape)
          .stateful(),
      not_differentiable("a handle is not a number"));
  kernels.add("ResourceConditionalAccumulator", DeviceKind::kCpu, {}, make_accumulator_handle);

  ops.add(
      OpDef("ResourceAccumulatorApplyGradient")
          .input("handle: resource")
          .input("local_step: int64")
          .input("gradient: dtype")
          .attr(type_attr("dtype", FloatTypes{}))
          .attr("replica: int = -1")
          .doc("Adds a gradient; one whose `local_step` is below the accumulator's global step is dropped. Gradients "
               "of nodes with a `replica` (not TensorFlow's) are summed in the order of these, so that the result "
               "does not depend on who came first.")
          .shape(apply_gradient_shape)
          .stateful(),
      not_differentiable(no_value));
  kernels.add<ApplyGradientKernel>("ResourceAccumulatorApplyGradient", DeviceKind::kCpu, {});

  ops.add(OpDef("ResourceAccumulatorTakeGradient")
              .input("handle: resource")
              .input("num_required: int32")
              .output("average: dtype")
              .attr(type_attr("dtype", FloatTypes{}))
              .doc("Waits until `num_required` gradients have come and gives the mean (or sum) of all there are. The "
                   "accumulator starts from none again and its global step grows by one.")
              .shape(take_gradient_shape)
              .stateful(),
          not_differentiable("gradients of gradients do not pass through an accumulator"));
  kernels.add<TakeGradientKernel>("ResourceAccumulatorTakeGradient", DeviceKind::kCpu, {});

  ops.add(OpDef("ResourceAccumulatorSetGlobalStep")
              .input("handle: resource")
              .input("new_global_step: int64")
              .doc("Sets the accumulator's global step, by which it tells stale gradients.")
              .shape(set_global_step_shape)
              .stateful(),
          not_differentiable(no_value));
  kernels.add<SetGlobalStepKernel>("ResourceAccumulatorSetGlobalStep", DeviceKind::kCpu, {});

  ops.add(OpDef("ResourceAccumulatorNumAccumulated")
              .input("handle: resource")
              .output("num_accumulated: int32")
              .doc("How many gradients have come since one was last taken.")
              .shape(scalar_shape)
              .stateful(),
          not_differentiable("a count does not depend on values"));
  kernels.add<NumAccumulatedKernel>("ResourceAccumulatorNumAccumulated", DeviceKind::kCpu, {});
}

}  // namespace troupe
