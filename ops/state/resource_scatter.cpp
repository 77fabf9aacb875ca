// SPDX-License-Identifier: Apache-2.0
// Changing parts of a variable in place: ResourceScatterUpdate, -Add, -Sub, -Mul, -Div, -Min, -Max;
// ResourceScatterNdUpdate, -Add, -Sub, -Min, -Max; ResourceStridedSliceAssign.
#include <algorithm>

#include "containers/container.h"
#include "ops/array/gather.h"
#include "ops/array/nd_index.h"
#include "ops/array/slice_spec.h"
#include "ops/parts/gpu_elementwise.h"
#include "ops/parts/index_tensors.h"
#include "ops/parts/resource_kernel.h"
#include "ops/parts/scatter.h"
#include "ops/parts/strided_copy.h"
#include "ops/parts/type_dispatch.h"
#include "ops/parts/variable_memory.h"
#include "ops/state/register.h"
#include "ops/state/variable_shape.h"

namespace troupe {
namespace {

using AnyTypes = TypeList<float, double, float16, bfloat16, int32_t, int64_t, int8_t, int16_t, uint8_t, uint16_t,
                          uint32_t, uint64_t, complex64, complex128, bool, std::string>;

ScatterHow how_from(std::string_view op) {
  const std::pair<std::string_view, ScatterHow> kinds[] = {{"Add", ScatterHow::kAdd}, {"Sub", ScatterHow::kSub},
                                                           {"Mul", ScatterHow::kMul}, {"Div", ScatterHow::kDiv},
                                                           {"Min", ScatterHow::kMin}, {"Max", ScatterHow::kMax}};
  for (const auto& [end, how] : kinds)
    if (op.ends_with(end)) return how;
  return ScatterHow::kUpdate;
}

/// Slices of `inner` elements of v combined with those from `updates` onwards, `step` apart.
template <ScatterHow kHow, class T>
void change(void* v, std::span<const int64_t> offsets, int64_t inner, const void* updates, int64_t step) {
  const T* from = static_cast<const T*>(updates);
  for (const int64_t at : offsets) {
    T* to = static_cast<T*>(v) + at * inner;
    for (int64_t i = 0; i < inner; ++i) {
      if constexpr (kHow == ScatterHow::kUpdate) to[i] = from[i];
      else to[i] = narrow<T>(combine<kHow>(widen(to[i]), widen(from[i])));
    }
    from += step;
  }
}

bool has_zero(const Tensor& t) {
  bool has = false;
  with_type(t.dtype(), IntegerTypes{}, [&]<class T>() { has = std::ranges::count(t.values<T>(), T(0)) > 0; });
  return has;
}

/// Has `change(name, value)` change the variable of input 0 in place.
template <class F>
Result<std::vector<Tensor>> change_variable(Resource& resource, const ResourceRequest& request, F&& change) {
  TROUPE_ASSIGN(Container* const container, core_of<Container>(resource, request, "variable"));
  const ResourceHandle* handle = &request.handle();
  return no_output(container->update(
      {&handle, 1}, request.allocator,
      [&](std::span<Tensor* const> variables) -> Status { return change(handle->name, *variables[0]); }));
}

/// The slices of variable v that the op changes. Errors: those of indices' shapes; updates that do not fit.
Result<GatherPlan> plan_scatter(const std::string& name, const Tensor& v, const Tensor& indices, const Tensor& updates,
                                bool nd) {
  if (!nd && v.rank() == 0) return invalid_argument("variable '{}' is a scalar, which has no rows", name);
  TROUPE_ASSIGN(GatherPlan plan,
                nd ? plan_gather_nd(v.shape(), indices.shape()) : plan_gather(v.shape(), indices.shape(), 0, 0));
  const bool one = !nd && updates.rank() == 0;
  if (updates.dtype() != v.dtype() || (!one && plan.shape != updates.shape()))
    return invalid_argument("variable '{}' is {}{}; updates by indices {} must be {}, not {}{}", name,
                            to_string(v.dtype()), v.shape().str(), indices.shape().str(), plan.shape.str(),
                            to_string(updates.dtype()), updates.shape().str());
  return plan;
}

class ScatterKernel final : public AnsweringKernel {
 public:
  explicit ScatterKernel(const KernelInit& init)
      : how_(how_from(init.op)), nd_(init.op.find("ScatterNd") != std::string_view::npos) {}

  Result<std::vector<Tensor>> answer(Resource& resource, ResourceRequest& request) override {
    return change_variable(resource, request, [&](const std::string& name, Tensor& v) {
      return scatter(name, v, request.inputs[1], request.inputs[2], request.allocator);
    });
  }

 private:
  Status scatter(const std::string& name, Tensor& v, const Tensor& indices, const Tensor& updates,
                 const std::shared_ptr<Allocator>& allocator) const {
    TROUPE_ASSIGN(const GatherPlan plan, plan_scatter(name, v, indices, updates, nd_));
    TROUPE_ASSIGN(const std::vector<int64_t> offsets,
                  nd_ ? nd_slices(indices, v.shape()) : row_slices(indices, v.dim(0)));
    const bool one = !nd_ && updates.rank() == 0;
    const int64_t inner = plan.inner;
    const DType dtype = v.dtype();
    if (how_ == ScatterHow::kDiv && has_zero(updates))
      return invalid_argument("updates {} divide by zero", updates.str());
    const bool sum = how_ == ScatterHow::kAdd || how_ == ScatterHow::kSub, boolean = dtype == DType::kBool;
    const bool number = dtype != DType::kString && (!boolean || (nd_ && sum));
    if (how_ != ScatterHow::kUpdate &&
        (!number || (is_complex(dtype) && (how_ == ScatterHow::kMin || how_ == ScatterHow::kMax))))
      return make_error(Code::kUnimplemented, "not for {}", to_string(dtype));
    Tensor from = updates;
    if (one && inner > 0) {
      TROUPE_ASSIGN(from, broadcast_to(updates, Shape{inner}, allocator, 1));
    }
    const auto with = [&]<ScatterHow kHow>() {
      return [&]<class T>() { change<kHow, T>(v.mutable_raw(), offsets, inner, from.raw(), one ? 0 : inner); };
    };
    if (boolean && sum) {
      const auto combine_bools = [&]<ScatterHow kHow>() {
        change<kHow, bool>(v.mutable_raw(), offsets, inner, from.raw(), inner);
      };
      how_ == ScatterHow::kAdd ? combine_bools.template operator()<ScatterHow::kAdd>()
                               : combine_bools.template operator()<ScatterHow::kSub>();
      return {};
    }
    switch (how_) {
      case ScatterHow::kUpdate: with_storage(dtype, with.template operator()<ScatterHow::kUpdate>()); break;
      case ScatterHow::kAdd: with_wrapping(dtype, with.template operator()<ScatterHow::kAdd>()); break;
      case ScatterHow::kSub: with_wrapping(dtype, with.template operator()<ScatterHow::kSub>()); break;
      case ScatterHow::kMul: with_wrapping(dtype, with.template operator()<ScatterHow::kMul>()); break;
      case ScatterHow::kDiv:
        with_type(dtype, NumberOrComplexTypes{}, with.template operator()<ScatterHow::kDiv>());
        break;
      case ScatterHow::kMin: with_type(dtype, NumberTypes{}, with.template operator()<ScatterHow::kMin>()); break;
      case ScatterHow::kMax: with_type(dtype, NumberTypes{}, with.template operator()<ScatterHow::kMax>()); break;
    }
    return {};
  }

  const ScatterHow how_;
  const bool nd_;
};

/// The same in the order of a GPU's stream. Its element-wise checks are left out: see launch_scatter.
class GpuScatterKernel final : public AnsweringKernel {
 public:
  GpuScatterKernel(const KernelInit& init, LaunchScatter launch)
      : launch_(launch), how_(how_from(init.op)), nd_(init.op.find("ScatterNd") != std::string_view::npos) {}

  Result<std::vector<Tensor>> answer(Resource& resource, ResourceRequest& request) override {
    TROUPE_ASSIGN(Container* const container, core_of<Container>(resource, request, "variable"));
    return no_output(scatter(*container, request));
  }

 private:
  Status scatter(Container& container, const ResourceRequest& request) const {
    if (!request.gpu) return make_error(Code::kInternal, "no GPU asks for what a GPU does");
    const ResourceHandle* handle = &request.handle();
    TROUPE_RETURN_IF_ERROR(bring_to_gpu(container, *handle, request.gpu));
    const Tensor &indices = request.inputs[1], &updates = request.inputs[2];
    return container.rewrite(
        {&handle, 1}, request.allocator, [&](std::span<const Container::Rewritten> variables) -> Status {
          const Container::Rewritten& v = variables[0];
          TROUPE_ASSIGN(const GatherPlan plan, plan_scatter(handle->name, *v.from, indices, updates, nd_));
          if (v.from->bytes() > 0 && !v.in_place())
            TROUPE_RETURN_IF_ERROR(
                request.gpu->stream.copy(v.to->mutable_address(), v.from->address(), v.from->bytes()));
          return launch_({*request.gpu, how_, *v.to, indices, updates, plan.bounds, plan.count, plan.inner});
        });
  }

  const LaunchScatter launch_;
  const ScatterHow how_;
  const bool nd_;
};

class StridedSliceAssign final : public AnsweringKernel {
 public:
  explicit StridedSliceAssign(const KernelInit& init) : masks_(*init.attrs) {}

  Result<std::vector<Tensor>> answer(Resource& resource, ResourceRequest& request) override {
    return change_variable(resource, request,
                           [&](const std::string& name, Tensor& v) { return assign(name, v, request); });
  }

 private:
  Status assign(const std::string& name, Tensor& v, const ResourceRequest& request) const {
    TROUPE_ASSIGN(const auto begin, int_values(request.inputs[1], "begin"));
    TROUPE_ASSIGN(const auto end, int_values(request.inputs[2], "end"));
    TROUPE_ASSIGN(const auto strides, int_values(request.inputs[3], "strides"));
    TROUPE_ASSIGN(const SliceSpec spec, slice_spec(v.shape(), begin, end, strides, masks_));
    const Tensor& value = request.inputs[4];
    if (value.dtype() != v.dtype())
      return invalid_argument("variable '{}' is {}, the value {}", name, to_string(v.dtype()),
                              to_string(value.dtype()));
    TROUPE_ASSIGN(const Tensor part, broadcast_to(value, spec.result.shape(), request.allocator, 1));
    write_slice(spec, v, part, 1);
    return {};
  }

  const SliceMasks masks_;
};

const char* const kNoValue = "it has no output; what it writes is read by other nodes";

Status scatter_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape v, variable_shape(c, 0, c.attr<DType>("dtype")));
  const PartialShape &indices = c.input(1), &updates = c.input(2);
  if (v.has_rank() && v.rank() == 0) return invalid_argument("the variable is a scalar, which has no rows");
  if (!v.has_rank() || !indices.has_rank() || !updates.has_rank() || updates.rank() == 0) return {};
  std::vector<int64_t> sizes(indices.dims().begin(), indices.dims().end());
  sizes.insert(sizes.end(), v.dims().begin() + 1, v.dims().end());
  TROUPE_ASSIGN(const PartialShape wanted, PartialShape::make(sizes));
  if (!wanted.compatible(updates))
    return invalid_argument("updates of a variable {} by indices {} must be {}, not {}", v.str(), indices.str(),
                            wanted.str(), updates.str());
  return {};
}

Status resource_scatter_nd_shape(ShapeContext& c) {
  TROUPE_ASSIGN(const PartialShape v, variable_shape(c, 0, c.attr<DType>("T")));
  TROUPE_ASSIGN(const PartialShape indices, c.with_rank_at_least(1, 1));
  if (!v.has_rank() || !indices.has_rank() || indices.dim(-1) < 0 || !c.input(2).has_rank()) return {};
  if (indices.dim(-1) > v.rank())
    return invalid_argument("indices of shape {} into a variable {}", indices.str(), v.str());
  std::vector<int64_t> sizes(indices.dims().begin(), indices.dims().end() - 1);
  sizes.insert(sizes.end(), v.dims().begin() + indices.dim(-1), v.dims().end());
  TROUPE_ASSIGN(const PartialShape wanted, PartialShape::make(sizes));
  if (!wanted.compatible(c.input(2)))
    return invalid_argument("updates of a variable {} by indices {} must be {}, not {}", v.str(), indices.str(),
                            wanted.str(), c.input(2).str());
  return {};
}

Status strided_slice_assign_shape(ShapeContext& c) { return variable_shape(c, 0, c.attr<DType>("T")).status(); }

/// The types an op is for: every one for an update, complex ones where they have an order or not.
/// What slices may be added to and subtracted from.
using SliceTypes = TypeList<float, double, float16, bfloat16, int32_t, int64_t, int8_t, int16_t, uint8_t, uint16_t,
                            uint32_t, uint64_t, complex64, complex128, bool>;

std::string types_for(const char* attr, ScatterHow how, bool nd) {
  if (how == ScatterHow::kUpdate) return type_attr(attr, AnyTypes{});
  if (how == ScatterHow::kMin || how == ScatterHow::kMax) return type_attr(attr, NumberTypes{});
  return nd ? type_attr(attr, SliceTypes{}) : type_attr(attr, NumberOrComplexTypes{});
}

}  // namespace

void register_resource_scatter_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const std::string indices = type_attr("Tindices", IndexTypes{});
  const std::pair<const char*, const char*> kinds[] = {{"Update", "variable[i] = u"},
                                                       {"Add", "variable[i] += u"},
                                                       {"Sub", "variable[i] -= u"},
                                                       {"Mul", "variable[i] *= u"},
                                                       {"Div", "variable[i] /= u"},
                                                       {"Min", "variable[i] = min(variable[i], u)"},
                                                       {"Max", "variable[i] = max(variable[i], u)"}};
  for (const auto& [kind, formula] : kinds) {
    const std::string name = std::string("ResourceScatter") + kind;
    ops.add(OpDef(name)
                .input("resource: resource")
                .input("indices: Tindices")
                .input("updates: dtype")
                .attr(types_for("dtype", how_from(kind), false))
                .attr(indices)
                .doc(fmt::format("{} for each row i that `indices` names and its row u of `updates` (or the one number "
                                 "that updates is), one after the other, in place. Integers wrap around; an index out "
                                 "of range or an integer division by zero is an error that changes nothing.",
                                 formula))
                .shape(scatter_shape)
                .updates_variable()
                .stateful(),
            not_differentiable(kNoValue));
    kernels.add<ScatterKernel>(name, DeviceKind::kCpu, {});
    if (how_from(kind) == ScatterHow::kMul || how_from(kind) == ScatterHow::kDiv) continue;
    const std::string nd = std::string("ResourceScatterNd") + kind;
    ops.add(
        OpDef(nd)
            .input("ref: resource")
            .input("indices: Tindices")
            .input("updates: T")
            .attr(types_for("T", how_from(kind), true))
            .attr(indices)
            .attr("use_locking: bool = true")
            .attr("bad_indices_policy: {'', 'DEFAULT', 'ERROR'} = ''")
            .doc(fmt::format("{} for each slice i that a row of the last dimension of `indices` names and its slice "
                             "u of `updates`, one after the other, in place. Integers wrap around; an index out of "
                             "range is an error that changes nothing.",
                             formula))
            .shape(resource_scatter_nd_shape)
            .updates_variable()
            .stateful(),
        not_differentiable(kNoValue));
    kernels.add<ScatterKernel>(nd, DeviceKind::kCpu, {});
  }

  ops.add(OpDef("ResourceStridedSliceAssign")
              .input("ref: resource")
              .input("begin: Index")
              .input("end: Index")
              .input("strides: Index")
              .input("value: T")
              .attr("T: type")
              .attr(type_attr("Index", IndexTypes{}))
              .attr("begin_mask: int = 0")
              .attr("end_mask: int = 0")
              .attr("ellipsis_mask: int = 0")
              .attr("new_axis_mask: int = 0")
              .attr("shrink_axis_mask: int = 0")
              .doc("Sets the part of the variable that StridedSlice would read, in place. The value is broadcast.")
              .shape(strided_slice_assign_shape)
              .stateful(),
          not_differentiable(kNoValue));
  kernels.add<StridedSliceAssign>("ResourceStridedSliceAssign", DeviceKind::kCpu, {});
}

void register_resource_scatter_gpu(KernelRegistry& kernels, LaunchScatter launch) {
  const std::vector<DType> numbers = gpu_numbers();
  for (const char* kind : {"Update", "Add", "Sub", "Mul", "Div", "Min", "Max"})
    for (const bool nd : {false, true}) {
      const ScatterHow how = how_from(kind);
      if (nd && (how == ScatterHow::kMul || how == ScatterHow::kDiv)) continue;
      const char* attr = nd ? "T" : "dtype";
      KernelRegistry::Types types = {{attr, how == ScatterHow::kDiv ? FloatTypes::dtypes() : numbers}};
      if (how == ScatterHow::kUpdate) types = gpu_variables(attr);
      kernels.add(std::string("ResourceScatter") + (nd ? "Nd" : "") + kind, DeviceKind::kCuda, std::move(types),
                  [launch](const KernelInit& init) -> Result<std::unique_ptr<ResourceKernel>> {
                    return std::unique_ptr<ResourceKernel>(new GpuScatterKernel(init, launch));
                  });
    }
}

}  // namespace troupe
