// SPDX-License-Identifier: Apache-2.0
// The stacks in which TensorFlow's loops keep values for their gradients: StackV2, StackPushV2, StackPopV2,
// StackCloseV2. Troupe's own loop gradients use lists (loop_gradient.h in graph/).
#include "ops/control/register.h"
#include "ops/control/step_object.h"
#include "ops/parts/index_tensors.h"

namespace troupe {
namespace {

struct Stack {
  static constexpr const char* kKind = "stack";
  std::mutex mutex;
  DType dtype = DType::kInvalid;
  int64_t most = -1;  // elements; -1: any number
  bool closed = false;
  std::vector<Tensor> elements;
};

class MakeStack final : public ComputeKernel {
 public:
  explicit MakeStack(const KernelInit& init) : dtype_(init.attr<DType>("elem_type")) {}
  Status compute(KernelContext& c) override {
    auto stack = std::make_shared<Stack>();
    TROUPE_ASSIGN(stack->most, int_scalar(c.input(0), "max_size"));
    stack->dtype = dtype_;
    c.set_output(0, step_handle(std::move(stack)));
    return {};
  }

 private:
  const DType dtype_;
};

class Push final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const std::shared_ptr<Stack> stack, step_object<Stack>(c.input(0)));
    const Tensor& element = c.input(1);
    const std::lock_guard lock(stack->mutex);
    if (stack->closed) return make_error(Code::kFailedPrecondition, "the stack was closed");
    if (element.dtype() != stack->dtype)
      return invalid_argument("{} does not go on a stack of {}", to_string(element.dtype()), to_string(stack->dtype));
    if (stack->most >= 0 && static_cast<int64_t>(stack->elements.size()) >= stack->most)
      return invalid_argument("the stack has its {} elements already", stack->most);
    stack->elements.push_back(element);
    c.set_output(0, element);
    return {};
  }
};

class Pop final : public ComputeKernel {
 public:
  explicit Pop(const KernelInit& init) : dtype_(init.attr<DType>("elem_type")) {}
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const std::shared_ptr<Stack> stack, step_object<Stack>(c.input(0)));
    const std::lock_guard lock(stack->mutex);
    if (stack->closed) return make_error(Code::kFailedPrecondition, "the stack was closed");
    if (stack->dtype != dtype_)
      return invalid_argument("a stack of {}, where {} is expected", to_string(stack->dtype), to_string(dtype_));
    if (stack->elements.empty()) return invalid_argument("the stack is empty");
    c.set_output(0, std::move(stack->elements.back()));
    stack->elements.pop_back();
    return {};
  }

 private:
  const DType dtype_;
};

class CloseStack final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    TROUPE_ASSIGN(const std::shared_ptr<Stack> stack, step_object<Stack>(c.input(0)));
    const std::lock_guard lock(stack->mutex);
    stack->closed = true;
    stack->elements.clear();
    return {};
  }
};

}  // namespace

void register_stack_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const Gradient none = not_differentiable("only gradients of loops use stacks");
  ops.add(
      OpDef("StackV2")
          .input("max_size: int32")
          .output("handle: resource")
          .attr("elem_type: type")
          .attr("stack_name: string = ''")
          .stateful()
          .shape(scalar_shape)
          .doc("A new stack for tensors of elem_type, at most max_size where that is not negative. It lives as long "
               "as the step."),
      none);
  ops.add(OpDef("StackPushV2")
              .input("handle: resource")
              .input("elem: T")
              .output("output: T")
              .attr("T: type")
              .attr("swap_memory: bool = false")
              .stateful()
              .shape([](ShapeContext& c) -> Status {
                c.set_output(0, c.input(1));
                return {};
              })
              .doc("Puts elem on the stack and passes it on. swap_memory makes no difference."),
          none);
  ops.add(OpDef("StackPopV2")
              .input("handle: resource")
              .output("elem: elem_type")
              .attr("elem_type: type")
              .stateful()
              .shape(unknown_shape)
              .doc("Takes the newest element off the stack."),
          none);
  ops.add(OpDef("StackCloseV2")
              .input("handle: resource")
              .stateful()
              .shape(no_outputs)
              .doc("Gives up the elements; the stack is not usable any more."),
          none);
  kernels.add<MakeStack>("StackV2", DeviceKind::kCpu, {});
  kernels.add<Push>("StackPushV2", DeviceKind::kCpu, {});
  kernels.add<Pop>("StackPopV2", DeviceKind::kCpu, {});
  kernels.add<CloseStack>("StackCloseV2", DeviceKind::kCpu, {});
}

}  // namespace troupe
