// SPDX-License-Identifier: Apache-2.0
// Gradient accumulators: ResourceConditionalAccumulator and SparseConditionalAccumulator make handles;
// ResourceAccumulatorApplyGradient, -TakeGradient, SparseAccumulatorApplyGradient, -TakeGradient, and for both
// ResourceAccumulatorSetGlobalStep and -NumAccumulated run at the accumulator's host.
#include "containers/gradient_accumulator.h"
#include "containers/sparse_gradient_accumulator.h"
#include "ops/parts/resource_kernel.h"
#include "ops/parts/type_dispatch.h"
#include "ops/state/register.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

/// The handle of an accumulator of class A.
template <class A> Result<std::unique_ptr<ComputeKernel>> make_accumulator_handle(const KernelInit& init) {
  ResourceHandle handle = make_handle(init, "accumulator");
  handle.dtype = init.attr<DType>("dtype");
  handle.shape = init.attr<PartialShape>("shape");
  const auto& reduction = init.attr<std::string>("reduction_type");
  handle.signature = fmt::format("{} {}{} {}", init.op, to_string(handle.dtype), handle.shape.str(), reduction);
  using enum Accumulator::Reduction;
  const auto how = reduction == "SUM" ? kSum : reduction == "MEAN" ? kMean : kMeanOfAll;
  handle.factory = [name = handle.name, dtype = handle.dtype, shape = handle.shape, how] {
    return A::make(name, dtype, shape, how);
  };
  return std::unique_ptr<ComputeKernel>(std::make_unique<HandleKernel>(std::move(handle)));
}

/// A kernel for accumulators of class A.
template <class A> class AccumulatorKernel : public ResourceKernel {
 public:
  void execute(Resource& resource, ResourceRequest request) final {
    if (auto* accumulator = core_as<A>(resource, request, "gradient accumulator")) run(*accumulator, request);
  }

 private:
  virtual void run(A& accumulator, ResourceRequest& request) = 0;
};

/// Input i of the request as a scalar of T. Error: it is none.
template <class T> Result<int64_t> scalar_input(const ResourceRequest& request, int i) {
  const Tensor& t = request.inputs[i];
  if (t.dtype() != dtype_of<T> || t.elements() != 1)
    return invalid_argument("input {} must be a scalar {}, got {}", i, to_string(dtype_of<T>), t.str());
  return static_cast<int64_t>(t.data<T>()[0]);
}

class ApplyGradientKernel final : public AccumulatorKernel<GradientAccumulator> {
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

class ApplySparseGradientKernel final : public AccumulatorKernel<SparseGradientAccumulator> {
 public:
  explicit ApplySparseGradientKernel(const KernelInit& init)
      : has_shape_(init.attr<bool>("has_known_shape")), replica_(init.attr<int64_t>("replica")) {}

 private:
  void run(SparseGradientAccumulator& accumulator, ResourceRequest& request) override {
    const auto step = scalar_input<int64_t>(request, 1);
    if (!step.ok()) return request.reply(step.error());
    const Tensor none = Tensor::of<int64_t>({});
    request.reply(no_output(accumulator.apply_gradient(*step, request.inputs[2], request.inputs[3],
                                                       has_shape_ ? request.inputs[4] : none, replica_,
                                                       std::move(request.allocator))));
  }
  const bool has_shape_;
  const int64_t replica_;
};

template <class A> class TakeGradientKernel final : public AccumulatorKernel<A> {
 public:
  explicit TakeGradientKernel(const KernelInit& init) : dtype_(init.attr<DType>("dtype")) {}

 private:
  void run(A& accumulator, ResourceRequest& request) override {
    const auto required = scalar_input<int32_t>(request, 1);
    if (!required.ok()) return request.reply(required.error());
    if (accumulator.dtype() != dtype_)
      return request.reply(invalid_argument("the accumulator holds {}, the node takes {}",
                                            to_string(accumulator.dtype()), to_string(dtype_)));
    accumulator.take_gradient(*required, std::move(request.reply));
  }
  const DType dtype_;
};

class SetGlobalStepKernel final : public AccumulatorKernel<Accumulator> {
  void run(Accumulator& accumulator, ResourceRequest& request) override {
    const auto step = scalar_input<int64_t>(request, 1);
    if (!step.ok()) return request.reply(step.error());
    accumulator.set_global_step(*step);
    request.reply(std::vector<Tensor>());
  }
};

class NumAccumulatedKernel final : public AccumulatorKernel<Accumulator> {
  void run(Accumulator& accumulator, ResourceRequest& request) override {
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

Status apply_sparse_gradient_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 0));
  TROUPE_RETURN_IF_ERROR(c.with_rank(2, 1));
  TROUPE_RETURN_IF_ERROR(c.with_rank_at_least(3, 1));
  return c.with_rank(4, 1).status();
}

Status take_sparse_gradient_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 0));
  const Node* node = c.source(0).node;
  const auto* whole = node ? node->attrs().get<PartialShape>("shape") : nullptr;
  c.set_output(0, {-1});
  if (!whole || !whole->has_rank()) return c.set_output(2, {-1}), Status();
  std::vector<int64_t> rows(whole->dims().begin(), whole->dims().end());
  if (rows.empty()) rows = {-1};
  rows[0] = -1;
  TROUPE_ASSIGN(PartialShape values, PartialShape::make(rows));
  c.set_output(1, std::move(values));
  c.set_output(2, {static_cast<int64_t>(rows.size())});
  return {};
}

Status set_global_step_shape(ShapeContext& c) { return c.with_rank(1, 0).status(); }

}  // namespace

void register_accumulator_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const char* no_value = "it has no output; what it adds is taken by another node";
  const auto add_accumulator = [&](const char* name, const char* reductions, const std::string& what) {
    ops.add(OpDef(name)
                .output("handle: resource")
                .attr(type_attr("dtype", FloatTypes{}))
                .attr("shape: shape")
                .attr("container: string = ''")
                .attr("shared_name: string = ''")
                .attr(fmt::format("reduction_type: {{{}}} = 'MEAN'", reductions))
                .doc("A handle to an accumulator of " + what +
                     " of the same `shared_name` (the node's name when empty) and `container` share one.")
                .shape(scalar_shape)
                .stateful(),
            not_differentiable("a handle is not a number"));
  };
  add_accumulator("ResourceConditionalAccumulator", "'MEAN', 'SUM'",
                  "gradients of `dtype` and `shape`, which gives their mean or sum. Nodes");
  kernels.add("ResourceConditionalAccumulator", DeviceKind::kCpu, {}, make_accumulator_handle<GradientAccumulator>);
  add_accumulator("SparseConditionalAccumulator", "'MEAN', 'SUM', 'MEAN_OF_ALL'",
                  "gradients of rows of a variable of `dtype` and `shape`, which gives for each row the sum, or the "
                  "mean of the gradients that have it, or (not TensorFlow's) the mean of all gradients. Nodes");
  kernels.add("SparseConditionalAccumulator", DeviceKind::kCpu, {}, make_accumulator_handle<SparseGradientAccumulator>);

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
  kernels.add<TakeGradientKernel<GradientAccumulator>>("ResourceAccumulatorTakeGradient", DeviceKind::kCpu, {});

  ops.add(OpDef("SparseAccumulatorApplyGradient")
              .input("handle: resource")
              .input("local_step: int64")
              .input("gradient_indices: int64")
              .input("gradient_values: dtype")
              .input("gradient_shape: int64")
              .attr(type_attr("dtype", FloatTypes{}))
              .attr("has_known_shape: bool")
              .attr("replica: int = -1")
              .doc("Adds row i of the values to row gradient_indices[i] of the sum; a gradient whose `local_step` is "
                   "below the accumulator's global step is dropped. `gradient_shape` is that of the whole, where it is "
                   "known; `replica` is as of ResourceAccumulatorApplyGradient.")
              .shape(apply_sparse_gradient_shape)
              .stateful(),
          not_differentiable(no_value));
  kernels.add<ApplySparseGradientKernel>("SparseAccumulatorApplyGradient", DeviceKind::kCpu, {});

  ops.add(OpDef("SparseAccumulatorTakeGradient")
              .input("handle: resource")
              .input("num_required: int32")
              .output("indices: int64")
              .output("values: dtype")
              .output("shape: int64")
              .attr(type_attr("dtype", FloatTypes{}))
              .doc("Waits until `num_required` gradients have come and gives the rows of all there are, in ascending "
                   "order. The accumulator starts from none again and its global step grows by one.")
              .shape(take_sparse_gradient_shape)
              .stateful(),
          not_differentiable("gradients of gradients do not pass through an accumulator"));
  kernels.add<TakeGradientKernel<SparseGradientAccumulator>>("SparseAccumulatorTakeGradient", DeviceKind::kCpu, {});

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
