// SPDX-License-Identifier: Apache-2.0
// Reading and writing slices by indices into several dimensions: GatherNd, ScatterNd, TensorScatterUpdate, ...Add,
// ...Sub, ...Min, ...Max.
#include "ops/array/gather.h"
#include "ops/array/nd_index.h"
#include "ops/array/register.h"
#include "ops/parts/gpu_elementwise.h"
#include "ops/parts/gradient_math.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/scatter.h"
#include "ops/parts/strided_copy.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

using NumberOrBoolTypes = TypeList<float, double, float16, bfloat16, int32_t, int64_t, int8_t, int16_t, uint8_t,
                                   uint16_t, uint32_t, uint64_t, complex64, complex128, bool>;
using AddableTypes = TypeList<float, double, float16, bfloat16, int32_t, int64_t, int8_t, int16_t, uint8_t, uint16_t,
                              uint32_t, uint64_t, complex64, complex128, bool, std::string>;

class GatherNd final : public ComputeKernel {
 public:
  explicit GatherNd(BadIndices policy) : policy_(policy) {}
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &indices = c.input(1);
    TROUPE_ASSIGN(const PartialShape result, nd_shape(indices.shape(), x.shape()));
    TROUPE_ASSIGN(const Shape shape, Shape::make(result.dims()));
    TROUPE_ASSIGN(const auto slices, nd_slices(indices, x.shape(), policy_));
    TROUPE_ASSIGN(Tensor y, c.allocate(x.dtype(), shape));
    const int64_t inner = nd_slice_size(indices, x.shape());
    with_storage(x.dtype(), [&]<class S>() {
      const S* in = static_cast<const S*>(x.raw());
      S* out = static_cast<S*>(y.mutable_raw());
      for (int64_t slice : slices) {
        if (slice < 0) std::fill_n(out, inner, S());
        else std::copy_n(in + slice * inner, inner, out);
        out += inner;
      }
    });
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const BadIndices policy_;
};

template <ScatterHow how, class T> T met(T a, T b) {
  if constexpr (how == ScatterHow::kUpdate) return b;
  else if constexpr (std::is_same_v<T, bool>) return a || b;
  else if constexpr (std::is_same_v<T, std::string>) return a + b;
  else return narrow<T>(combine<how>(widen(a), widen(b)));
}

/// The slices of a tensor of this shape that updates meet. Errors: those of nd_shape(); updates that do not fit.
Result<GatherPlan> plan_scatter_nd(const Shape& shape, const Shape& indices, const Shape& updates) {
  TROUPE_ASSIGN(GatherPlan plan, plan_gather_nd(shape, indices));
  if (plan.shape != updates)
    return invalid_argument("updates must have shape {}, not {}: indices are {} into {}", plan.shape.str(),
                            updates.str(), indices.str(), shape.str());
  return plan;
}

/// Slices of updates meet those of y that the rows of indices name, in the order of the rows.
template <ScatterHow how> Status scatter(Tensor& y, const Tensor& indices, const Tensor& updates, BadIndices policy) {
  const Shape shape = y.shape();
  TROUPE_ASSIGN(const GatherPlan plan, plan_scatter_nd(shape, indices.shape(), updates.shape()));
  TROUPE_ASSIGN(const auto slices, nd_slices(indices, shape, policy));
  const int64_t inner = plan.inner;
  const auto each = [&]<class S>(S* out, const S* in) {
    for (int64_t slice : slices) {
      if (slice >= 0)
        for (int64_t k = 0; k < inner; ++k) out[slice * inner + k] = met<how>(out[slice * inner + k], in[k]);
      in += inner;
    }
  };
  if constexpr (how == ScatterHow::kUpdate) {
    with_storage(y.dtype(),
                 [&]<class S>() { each(static_cast<S*>(y.mutable_raw()), static_cast<const S*>(updates.raw())); });
  } else {
    with_type(y.dtype(), AddableTypes{}, [&]<class T>() {
      constexpr bool ordered = how == ScatterHow::kMin || how == ScatterHow::kMax;
      if constexpr (!ordered || (!is_complex_type<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, std::string>))
        each(y.mutable_data<T>(), updates.data<T>());
    });
  }
  return {};
}

class ScatterNd final : public ComputeKernel {
 public:
  explicit ScatterNd(BadIndices policy) : policy_(policy) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const auto sizes, int_values(c.input(2), "shape"));
    TROUPE_ASSIGN(const Shape shape, Shape::make(sizes));
    TROUPE_ASSIGN(Tensor y, Tensor::zeros(c.input(1).dtype(), shape, c.device().allocator));
    TROUPE_RETURN_IF_ERROR(scatter<ScatterHow::kAdd>(y, c.input(0), c.input(1), policy_));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const BadIndices policy_;
};

/// Updates of a tensor, in its own memory where nobody else wants it.
template <ScatterHow how> class TensorScatter final : public ComputeKernel {
 public:
  explicit TensorScatter(BadIndices policy) : policy_(policy) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(Tensor y, writable_input(c, 0, c.input(2)));
    TROUPE_RETURN_IF_ERROR(scatter<how>(y, c.input(1), c.input(2), policy_));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const BadIndices policy_;
};

// --- on GPUs ---

class GpuScatterNd final : public ComputeKernel {
 public:
  explicit GpuScatterNd(LaunchScatter launch) : launch_(launch) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const auto sizes, int_values(c.input(2), "shape"));
    TROUPE_ASSIGN(const Shape shape, Shape::make(sizes));
    const Tensor &indices = c.input(0), &updates = c.input(1);
    TROUPE_ASSIGN(const GatherPlan plan, plan_scatter_nd(shape, indices.shape(), updates.shape()));
    TROUPE_ASSIGN(Tensor y, c.allocate(updates.dtype(), shape));
    const gpu::Compute& gpu = *c.device().gpu;
    if (y.elements() > 0) TROUPE_RETURN_IF_ERROR(gpu.stream.fill(y.mutable_address(), 0, y.bytes()));
    TROUPE_RETURN_IF_ERROR(launch_({gpu, ScatterHow::kAdd, y, indices, updates, plan.bounds, plan.count, plan.inner}));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const LaunchScatter launch_;
};

class GpuTensorScatter final : public ComputeKernel {
 public:
  GpuTensorScatter(LaunchScatter launch, ScatterHow how) : launch_(launch), how_(how) {}
  Status compute(KernelContext& c) override {
    const Tensor &x = c.input(0), &indices = c.input(1), &updates = c.input(2);
    TROUPE_ASSIGN(const GatherPlan plan, plan_scatter_nd(x.shape(), indices.shape(), updates.shape()));
    const bool apart = !x.shares_buffer(updates) && !x.shares_buffer(indices);
    TROUPE_ASSIGN(Tensor y, apart ? c.forward_or_allocate(0, x.dtype(), x.shape()) : c.allocate(x.dtype(), x.shape()));
    const gpu::Compute& gpu = *c.device().gpu;
    if (y.elements() > 0 && !y.shares_buffer(x))
      TROUPE_RETURN_IF_ERROR(gpu.stream.copy(y.mutable_address(), x.address(), x.bytes()));
    TROUPE_RETURN_IF_ERROR(launch_({gpu, how_, y, indices, updates, plan.bounds, plan.count, plan.inner}));
    c.set_output(0, std::move(y));
    return {};
  }

 private:
  const LaunchScatter launch_;
  const ScatterHow how_;
};

Status gather_nd_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(bad_indices_policy(c.attrs()).status());
  TROUPE_ASSIGN(PartialShape out, nd_shape(c.input(1), c.input(0)));
  c.set_output(0, std::move(out));
  return {};
}

/// `shape` with updates that fit it.
Status checked(ShapeContext& c, const PartialShape& shape, int indices, int updates) {
  TROUPE_RETURN_IF_ERROR(bad_indices_policy(c.attrs()).status());
  TROUPE_ASSIGN(const PartialShape wanted, nd_shape(c.input(indices), shape));
  if (!wanted.compatible(c.input(updates)))
    return invalid_argument("updates must have shape {}, not {}: indices are {} into {}", wanted.str(),
                            c.input(updates).str(), c.input(indices).str(), shape.str());
  c.set_output(0, shape);
  return {};
}

Status scatter_nd_shape(ShapeContext& c) {
  PartialShape shape;
  if (const auto sizes = c.constant_input(2)) {
    TROUPE_ASSIGN(shape, shape_from(*sizes, "shape"));
  } else if (c.input(2).has_rank() && c.input(2).rank() == 1 && c.input(2)[0] >= 0 && c.input(2)[0] <= kMaxRank) {
    shape = PartialShape::of_rank(static_cast<int>(c.input(2)[0]));
  }
  return checked(c, shape, 0, 1);
}

Status tensor_scatter_shape(ShapeContext& c) { return checked(c, c.input(0), 1, 2); }

// --- gradients ---

Attrs policy_of(GradientContext& c) {
  return {{"bad_indices_policy", c.node().attrs().get_or<std::string>("bad_indices_policy", "")}};
}

Output gather(GradientContext& c, Output x, Output indices) { return c.op("GatherNd", {x, indices}, policy_of(c)); }

/// Zeros like x to which slices are added.
Output spread(GradientContext& c, Output x, Output indices, Output slices) {
  indices = int32_or_int64(c, indices);
  return c.op("ScatterNd", {indices, slices, c.op("Shape", {x}, {{"out_type", indices.dtype()}})}, policy_of(c));
}

Status scatter_update_gradient(GradientContext& c) {
  const Output dy = c.dy(0), indices = c.input(1);
  if (!dy) return {};
  c.set_dx(0, c.op("TensorScatterUpdate", {dy, indices, c.op("ZerosLike", {c.input(2)})}, policy_of(c)));
  c.set_dx(2, gather(c, dy, indices));
  return {};
}

Status scatter_add_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  c.set_dx(0, c.dy(0));
  c.set_dx(2, gather(c, c.dy(0), c.input(1)));
  return {};
}

Status scatter_sub_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  c.set_dx(0, c.dy(0));
  c.set_dx(2, c.op("Neg", {gather(c, c.dy(0), c.input(1))}));
  return {};
}

/// All that are the least, or the largest, share the gradient.
Status scatter_extreme_gradient(GradientContext& c) {
  const Output dy = c.dy(0), x = c.input(0), indices = c.input(1), y = c.output(0);
  if (!dy) return {};
  const auto same = [&](Output a, Output b) { return c.op("Cast", {c.op("Equal", {a, b})}, {{"DstT", dy.dtype()}}); };
  const Output here = same(x, y), there = same(c.input(2), gather(c, y, indices));
  const Output share = c.op("RealDiv", {dy, c.op("AddV2", {here, spread(c, x, indices, there)})});
  c.set_dx(0, c.op("Mul", {share, here}));
  c.set_dx(2, c.op("Mul", {gather(c, share, indices), there}));
  return {};
}

template <class K> void add_kernel(KernelRegistry& kernels, const char* op, KernelRegistry::Types types = {}) {
  kernels.add(op, DeviceKind::kCpu, std::move(types),
              [](const KernelInit& init) -> Result<std::unique_ptr<ComputeKernel>> {
                TROUPE_ASSIGN(const BadIndices policy, bad_indices_policy(*init.attrs));
                return std::unique_ptr<ComputeKernel>(new K(policy));
              });
}

constexpr const char* kPolicy = "bad_indices_policy: string = ''";
constexpr const char* kBad = " An index out of range is an error, or passed over with bad_indices_policy IGNORE.";

/// An op of a tensor, indices and updates.
OpDef tensor_op(const char* name, const std::string& type, const std::string& doc) {
  OpDef op(name);
  op.input(std::string(name) == "ScatterNdNonAliasingAdd" ? "input: T" : "tensor: T");
  op.input("indices: Tindices").input("updates: T").output("output: T");
  op.attr(type).attr(type_attr("Tindices", IndexTypes{})).attr(kPolicy);
  op.shape(tensor_scatter_shape);
  return op.doc(doc + kBad);
}

}  // namespace

void register_gather_nd_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("GatherNd")
              .input("params: Tparams")
              .input("indices: Tindices")
              .output("output: Tparams")
              .attr("Tparams: type")
              .attr(type_attr("Tindices", TypeList<int16_t, int32_t, int64_t>{}))
              .attr(kPolicy)
              .shape(gather_nd_shape)
              .cost(pick_cost)
              .doc(std::string("The slices of params at rows of indices into its leading dimensions.") + kBad),
          gradient([](GradientContext& c) -> Status {
            if (c.dy(0)) c.set_dx(0, spread(c, c.input(0), c.input(1), c.dy(0)));
            return {};
          }));
  add_kernel<GatherNd>(kernels, "GatherNd");
  ops.add(OpDef("ScatterNd")
              .input("indices: Tindices")
              .input("updates: T")
              .input("shape: Tindices")
              .output("output: T")
              .attr(type_attr("T", AddableTypes{}))
              .attr(type_attr("Tindices", TypeList<int16_t, int32_t, int64_t>{}))
              .attr(kPolicy)
              .shape(scatter_nd_shape)
              .cost(move_cost)
              .doc(std::string("Zeros of `shape`, or empty strings, to which slices of updates are added at rows of "
                               "indices.") +
                   kBad),
          gradient([](GradientContext& c) -> Status {
            if (c.dy(0)) c.set_dx(1, gather(c, c.dy(0), c.input(0)));
            return {};
          }));
  add_kernel<ScatterNd>(kernels, "ScatterNd");
  const std::string any = "T: type", number = type_attr("T", NumberOrComplexTypes{});
  const std::string real = type_attr("T", NumberTypes{}), at = " at rows of indices.";
  ops.add(tensor_op("ScatterNdNonAliasingAdd", type_attr("T", NumberOrBoolTypes{}),
                    "The input with slices of updates added" + at),
          gradient(scatter_add_gradient));
  ops.add(tensor_op("TensorScatterUpdate", any,
                    "The tensor with slices of updates in place of those" + at +
                        " The last of several for one place "
                        "stays."),
          gradient(scatter_update_gradient));
  ops.add(tensor_op("TensorScatterAdd", number, "The tensor with slices of updates added" + at),
          gradient(scatter_add_gradient));
  ops.add(tensor_op("TensorScatterSub", number, "The tensor with slices of updates subtracted" + at),
          gradient(scatter_sub_gradient));
  ops.add(tensor_op("TensorScatterMin", real, "The lesser, element by element, of the tensor and of updates" + at),
          gradient(scatter_extreme_gradient));
  ops.add(tensor_op("TensorScatterMax", real, "The larger, element by element, of the tensor and of updates" + at),
          gradient(scatter_extreme_gradient));
  add_kernel<TensorScatter<ScatterHow::kAdd>>(kernels, "ScatterNdNonAliasingAdd");
  add_kernel<TensorScatter<ScatterHow::kUpdate>>(kernels, "TensorScatterUpdate");
  add_kernel<TensorScatter<ScatterHow::kAdd>>(kernels, "TensorScatterAdd");
  add_kernel<TensorScatter<ScatterHow::kSub>>(kernels, "TensorScatterSub");
  add_kernel<TensorScatter<ScatterHow::kMin>>(kernels, "TensorScatterMin");
  add_kernel<TensorScatter<ScatterHow::kMax>>(kernels, "TensorScatterMax");
}

void register_scatter_nd_gpu(KernelRegistry& kernels, LaunchScatter launch) {
  const std::vector<DType> numbers = gpu_numbers();
  kernels.add("ScatterNd", DeviceKind::kCuda, {{"T", numbers}},
              [launch](const KernelInit&) -> Result<std::unique_ptr<ComputeKernel>> {
                return std::unique_ptr<ComputeKernel>(new GpuScatterNd(launch));
              },
              {{2}, {}});
  const auto add = [&](const char* op, ScatterHow how, std::vector<DType> types) {
    kernels.add(op, DeviceKind::kCuda, {{"T", std::move(types)}},
                [launch, how](const KernelInit&) -> Result<std::unique_ptr<ComputeKernel>> {
                  return std::unique_ptr<ComputeKernel>(new GpuTensorScatter(launch, how));
                });
  };
  add("ScatterNdNonAliasingAdd", ScatterHow::kAdd, numbers);
  add("TensorScatterUpdate", ScatterHow::kUpdate, gpu_dtypes());
  add("TensorScatterAdd", ScatterHow::kAdd, numbers);
  add("TensorScatterSub", ScatterHow::kSub, numbers);
  add("TensorScatterMin", ScatterHow::kMin, numbers);
  add("TensorScatterMax", ScatterHow::kMax, numbers);
}

}  // namespace troupe
