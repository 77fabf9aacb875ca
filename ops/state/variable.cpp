// SPDX-License-Identifier: Apache-2.0
// Variables by handle: VarHandleOp, ReadVariableOp, AssignVariableOp, AssignAddVariableOp,
// AssignSubVariableOp, VarIsInitializedOp, DisableCopyOnRead, VariableShape, ResourceCountUpTo, DestroyResourceOp,
// _TakeVariable. All but the first run at the container's host.
#include <atomic>

#include "containers/container.h"
#include "ops/parts/instruction_sets.h"
#include "ops/parts/resource_kernel.h"
#include "ops/parts/variable_memory.h"
#include "ops/state/register.h"
#include "ops/state/variable_shape.h"
#include "troupe/graph.h"

namespace troupe {
namespace {

/// Outputs a handle of a new variable in each run: what TensorFlow's TemporaryVariable becomes.
class TemporaryHandleKernel final : public ComputeKernel {
 public:
  explicit TemporaryHandleKernel(ResourceHandle handle) : handle_(std::move(handle)) {}
  Status compute(KernelContext& c) override {
    ResourceHandle handle = handle_;
    handle.name = temporary_name(handle.name, c.step(), runs_++);
    c.set_output(0, Tensor::scalar<ResourceRef>(std::make_shared<const ResourceHandle>(std::move(handle))));
    return {};
  }

 private:
  const ResourceHandle handle_;
  std::atomic<int64_t> runs_ = 0;
};

Result<std::unique_ptr<ComputeKernel>> make_variable_handle(const KernelInit& init) {
  ResourceHandle handle = make_handle(init, "container");
  handle.dtype = init.attr<DType>("dtype");
  handle.shape = init.attr<PartialShape>("shape");
  handle.signature = "container";
  handle.factory = [container = handle.container]() -> Result<std::unique_ptr<Resource>> {
    return std::unique_ptr<Resource>(std::make_unique<Container>(container));
  };
  if (init.attrs->get_or("_temporary", false))
    return std::unique_ptr<ComputeKernel>(std::make_unique<TemporaryHandleKernel>(std::move(handle)));
  return std::unique_ptr<ComputeKernel>(std::make_unique<HandleKernel>(std::move(handle)));
}

/// A kernel at a container: `run` does the request and returns the answer. Where a GPU asks, the variable is in its
/// memory.
class VariableKernel : public AnsweringKernel {
 public:
  Result<std::vector<Tensor>> answer(Resource& resource, ResourceRequest& request) final {
    TROUPE_ASSIGN(Container* const container, core_of<Container>(resource, request, "variable"));
    if (request.gpu && uses_elements()) TROUPE_RETURN_IF_ERROR(bring_to_gpu(*container, request.handle(), request.gpu));
    return run(*container, request);
  }

 private:
  virtual Result<std::vector<Tensor>> run(Container& container, ResourceRequest& request) = 0;
};

class ReadKernel final : public VariableKernel {
  Result<std::vector<Tensor>> run(Container& container, ResourceRequest& request) override {
    return one_output(container.read(request.handle(), request.allocator->space()), std::move(request.inputs));
  }
};

class AssignKernel final : public VariableKernel {
 public:
  explicit AssignKernel(const KernelInit& init) : validate_shape_(init.attr<bool>("validate_shape")) {}
  bool uses_elements() const override { return false; }

 private:
  Result<std::vector<Tensor>> run(Container& container, ResourceRequest& request) override {
    return no_output(container.assign(request.handle(), std::move(request.inputs[1]), validate_shape_));
  }
  const bool validate_shape_;
};

TROUPE_SIMD_CLONES void add_floats(float* __restrict a, const float* __restrict b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) a[i] += b[i];
}
TROUPE_SIMD_CLONES void subtract_floats(float* __restrict a, const float* __restrict b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) a[i] -= b[i];
}

/// a += b or a -= b.
template <class T, bool kSubtract> class AccumulateKernel final : public VariableKernel {
  Result<std::vector<Tensor>> run(Container& container, ResourceRequest& request) override {
    const ResourceHandle* handle = &request.handle();
    const Tensor& delta = request.inputs[1];
    const auto accumulate = [&](std::span<Tensor* const> variables) -> Status {
      Tensor& v = *variables[0];
      if (delta.dtype() != v.dtype() || !(delta.shape() == v.shape()))
        return invalid_argument("variable '{}' is {}{}, what is {} {}{}", handle->name, to_string(v.dtype()),
                                v.shape().str(), kSubtract ? "subtracted" : "added", to_string(delta.dtype()),
                                delta.shape().str());
      T* a = v.mutable_data<T>();
      const T* b = delta.data<T>();
      const int64_t n = v.elements();
      if constexpr (std::is_same_v<T, float>) {
        kSubtract ? subtract_floats(a, b, n) : add_floats(a, b, n);
      } else if constexpr (std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>) {
        for (int64_t i = 0; i < n; ++i) a[i] = T(kSubtract ? float(a[i]) - float(b[i]) : float(a[i]) + float(b[i]));
      } else if constexpr (std::is_integral_v<T>) {  // wraps around
        using U = std::make_unsigned_t<T>;
        for (int64_t i = 0; i < n; ++i) a[i] = T(kSubtract ? U(U(a[i]) - U(b[i])) : U(U(a[i]) + U(b[i])));
      } else {
        for (int64_t i = 0; i < n; ++i) a[i] = kSubtract ? a[i] - b[i] : a[i] + b[i];
      }
      return {};
    };
    return no_output(container.update({&handle, 1}, request.allocator, accumulate), std::move(request.inputs));
  }
};

class IsInitializedKernel final : public VariableKernel {
  bool uses_elements() const override { return false; }
  Result<std::vector<Tensor>> run(Container& container, ResourceRequest& request) override {
    TROUPE_ASSIGN(const bool initialized, container.initialized(request.handle()));
    return one_output(Tensor::scalar(initialized));
  }
};

class NoCopyOnRead final : public VariableKernel {
  bool uses_elements() const override { return false; }
  Result<std::vector<Tensor>> run(Container&, ResourceRequest&) override { return std::vector<Tensor>{}; }
};

class VariableShapeKernel final : public VariableKernel {
 public:
  explicit VariableShapeKernel(const KernelInit& init) : out_type_(init.attr<DType>("out_type")) {}
  bool uses_elements() const override { return false; }

 private:
  Result<std::vector<Tensor>> run(Container& container, ResourceRequest& request) override {
    // Wherever the value is: without one, or where the handle does not fit, reading says so.
    Tensor value = container.held(request.handle());
    TROUPE_ASSIGN(value, container.read(request.handle(), value.defined() ? value.space() : Space::kHost));
    const auto dims = value.shape().dims();
    if (out_type_ == DType::kInt64) return one_output(Tensor::of<int64_t>(dims));
    const std::vector<int32_t> narrow(dims.begin(), dims.end());
    return one_output(Tensor::of<int32_t>(std::span(narrow)));
  }
  const DType out_type_;
};

template <class T> class CountUpToKernel final : public VariableKernel {
 public:
  explicit CountUpToKernel(const KernelInit& init) : limit_(init.attr<int64_t>("limit")) {}

 private:
  Result<std::vector<Tensor>> run(Container& container, ResourceRequest& request) override {
    const ResourceHandle* handle = &request.handle();
    Tensor before;
    TROUPE_RETURN_IF_ERROR(
        container.update({&handle, 1}, request.allocator, [&](std::span<Tensor* const> variables) -> Status {
          Tensor& v = *variables[0];
          if (v.dtype() != dtype_of<T> || v.rank() != 0)
            return invalid_argument("variable '{}' must be a scalar to count, not {}{}", handle->name,
                                    to_string(v.dtype()), v.shape().str());
          T& count = *v.mutable_data<T>();
          if (count >= limit_)
            return make_error(Code::kOutOfRange, "variable '{}' has reached its limit of {}", handle->name, limit_);
          before = Tensor::scalar(count++);
          return {};
        }));
    return one_output(std::move(before));
  }
  const int64_t limit_;
};

class DestroyKernel final : public VariableKernel {
 public:
  explicit DestroyKernel(const KernelInit& init) : ignore_missing_(init.attr<bool>("ignore_lookup_error")) {}
  bool uses_elements() const override { return false; }

 private:
  Result<std::vector<Tensor>> run(Container& container, ResourceRequest& request) override {
    Status status = container.erase(request.handle());
    return no_output(ignore_missing_ ? Status() : std::move(status));
  }
  const bool ignore_missing_;
};

class TakeKernel final : public VariableKernel {
  Result<std::vector<Tensor>> run(Container& container, ResourceRequest& request) override {
    TROUPE_ASSIGN(Tensor value, container.read(request.handle(), request.allocator->space()));
    TROUPE_RETURN_IF_ERROR(container.erase(request.handle()));
    return one_output(std::move(value));
  }
};

template <class... T> void add_accumulate_kernels(KernelRegistry& kernels) {
  (kernels.add<AccumulateKernel<T, false>>("AssignAddVariableOp", DeviceKind::kCpu, {{"dtype", {dtype_of<T>}}}), ...);
  (kernels.add<AccumulateKernel<T, true>>("AssignSubVariableOp", DeviceKind::kCpu, {{"dtype", {dtype_of<T>}}}), ...);
}

Status read_variable_shape(ShapeContext& c) {
  TROUPE_ASSIGN(PartialShape shape, variable_shape(c, 0, c.attr<DType>("dtype")));
  c.set_output(0, shape);
  return {};
}

Status assign_shape(ShapeContext& c) {
  TROUPE_ASSIGN(PartialShape shape, variable_shape(c, 0, c.attr<DType>("dtype")));
  if (!shape.compatible(c.input(1)))
    return invalid_argument("the variable has shape {}, the value {}", shape.str(), c.input(1).str());
  return {};
}

Status shape_of_variable_shape(ShapeContext& c) {
  TROUPE_ASSIGN(PartialShape shape, variable_shape(c, 0));
  c.set_output(0, shape.has_rank() ? PartialShape{shape.rank()} : PartialShape::of_rank(1));
  return {};
}

}  // namespace

void register_variable_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(OpDef("VarHandleOp")
              .output("resource: resource")
              .attr("container: string = ''")
              .attr("shared_name: string = ''")
              .attr("debug_name: string = ''")
              .attr("dtype: type")
              .attr("shape: shape")
              .attr("allowed_devices: list(string) = []")
              .doc("A handle to the variable `shared_name` (the node's name when empty) of `container`, "
                   "which holds "
                   "tensors of `dtype` and `shape`. The variable has no value until it is assigned.")
              .shape(scalar_shape)
              .stateful(),
          not_differentiable("a handle is not a number; gradients of ReadVariableOp flow to it"));
  kernels.add("VarHandleOp", DeviceKind::kCpu, {}, make_variable_handle);
  kernels.add("VarHandleOp", DeviceKind::kCuda, gpu_variables("dtype"), make_variable_handle);

  ops.add(OpDef("ReadVariableOp")
              .input("resource: resource")
              .output("value: dtype")
              .attr("dtype: type")
              .cost(no_cost)
              .doc("The variable's value at the moment of the read; later updates do not change it. Fails "
                   "when the "
                   "variable has no value.")
              .shape(read_variable_shape)
              .stateful(),
          gradient([](GradientContext& c) -> Status {
            c.set_dx(0, c.dy(0));
            return {};
          }));
  kernels.add<ReadKernel>("ReadVariableOp", DeviceKind::kCpu, {});
  kernels.add<ReadKernel>("ReadVariableOp", DeviceKind::kCuda, gpu_variables("dtype"));

  const char* no_value = "it has no output; what it writes is read by other nodes";
  ops.add(OpDef("AssignVariableOp")
              .input("resource: resource")
              .input("value: dtype")
              .attr("dtype: type")
              .attr("validate_shape: bool = false")
              .doc("Sets the variable. With `validate_shape` the value must have the shape of the present "
                   "one; it must "
                   "always fit the shape of the handle.")
              .shape(assign_shape)
              .stateful(),
          not_differentiable(no_value));
  kernels.add<AssignKernel>("AssignVariableOp", DeviceKind::kCpu, {});
  kernels.add<AssignKernel>("AssignVariableOp", DeviceKind::kCuda, gpu_variables("dtype"));

  for (const auto& [name, verb] : {std::pair("AssignAddVariableOp", "Adds `value` to"),
                                   std::pair("AssignSubVariableOp", "Subtracts `value` from")})
    ops.add(OpDef(name)
                .input("resource: resource")
                .input("value: dtype")
                .attr("dtype: type")
                .doc(std::string(verb) + " the variable, in place. Shapes must be equal; integers wrap around.")
                .shape(assign_shape)
                .updates_variable()
                .stateful(),
            not_differentiable(no_value));
  add_accumulate_kernels<float, double, bfloat16, float16, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t,
                         uint32_t, uint64_t, complex64, complex128>(kernels);

  ops.add(OpDef("VarIsInitializedOp")
              .input("resource: resource")
              .output("is_initialized: bool")
              .doc("Whether the variable has a value.")
              .shape(scalar_shape)
              .stateful(),
          not_differentiable("the output is a truth value"));
  kernels.add<IsInitializedKernel>("VarIsInitializedOp", DeviceKind::kCpu, {});
  kernels.add<IsInitializedKernel>("VarIsInitializedOp", DeviceKind::kCuda, {}, {{}, {0}});

  ops.add(OpDef("DisableCopyOnRead")
              .input("resource: resource")
              .doc("Nothing: a value that was read never changes here, so that reads need no copies.")
              .shape(no_outputs)
              .stateful(),
          not_differentiable(no_value));
  kernels.add<NoCopyOnRead>("DisableCopyOnRead", DeviceKind::kCpu, {});
  kernels.add<NoCopyOnRead>("DisableCopyOnRead", DeviceKind::kCuda, {});

  ops.add(OpDef("VariableShape")
              .input("input: resource")
              .output("output: out_type")
              .attr("out_type: {int32, int64} = int32")
              .doc("The sizes of the variable's value, outermost first. Fails when it has no value.")
              .shape(shape_of_variable_shape)
              .stateful(),
          not_differentiable("a shape does not depend on values"));
  kernels.add<VariableShapeKernel>("VariableShape", DeviceKind::kCpu, {});
  kernels.add<VariableShapeKernel>("VariableShape", DeviceKind::kCuda, {}, {{}, {0}});

  ops.add(OpDef("ResourceCountUpTo")
              .input("resource: resource")
              .output("output: T")
              .attr("limit: int")
              .attr("T: {int32, int64}")
              .doc("Adds one to the scalar variable and gives what it was before. Once it is at `limit` the error is "
                   "kOutOfRange, and it stays.")
              .shape(scalar_shape)
              .stateful(),
          not_differentiable("counts are integers"));
  kernels.add<CountUpToKernel<int32_t>>("ResourceCountUpTo", DeviceKind::kCpu, {{"T", {DType::kInt32}}});
  kernels.add<CountUpToKernel<int64_t>>("ResourceCountUpTo", DeviceKind::kCpu, {{"T", {DType::kInt64}}});

  ops.add(OpDef("DestroyResourceOp")
              .input("resource: resource")
              .attr("ignore_lookup_error: bool = true")
              .doc("Forgets the variable and its value. Fails for one that is not there when "
                   "`ignore_lookup_error` is "
                   "false.")
              .shape(no_outputs)
              .stateful(),
          not_differentiable(no_value));
  kernels.add<DestroyKernel>("DestroyResourceOp", DeviceKind::kCpu, {});
  kernels.add<DestroyKernel>("DestroyResourceOp", DeviceKind::kCuda, {});

  ops.add(OpDef("_TakeVariable")
              .input("resource: resource")
              .output("value: dtype")
              .attr("dtype: type")
              .doc("The variable's value; the variable is gone. DestroyTemporaryVariable of TensorFlow becomes it, and "
                   "TemporaryVariable a VarHandleOp of a variable that each run makes anew; where a step fails before, "
                   "its value stays until the container is reset.")
              .shape(read_variable_shape)
              .stateful(),
          not_differentiable("TensorFlow defines none"));
  kernels.add<TakeKernel>("_TakeVariable", DeviceKind::kCpu, {});
  kernels.add<TakeKernel>("_TakeVariable", DeviceKind::kCuda, gpu_variables("dtype"));
}

}  // namespace troupe
