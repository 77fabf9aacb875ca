// SPDX-License-Identifier: Apache-2.0
// The white paper's control flow: Switch, Merge, Enter, Exit, NextIteration, LoopCond. The executor carries them out;
// here are their schemas and the gradients of branches. troupe/control_flow.h builds branches and loops from them.
#include "ops/control/register.h"
#include "troupe/graph.h"
#include "troupe/scope.h"

namespace troupe {
namespace {

Result<std::unique_ptr<Kernel>> make_control_flow(const KernelInit&) {
  return std::unique_ptr<Kernel>(std::make_unique<BuiltinKernel>(Builtin::kControlFlow));
}

class LoopCondition final : public ComputeKernel {
 public:
  Status compute(KernelContext& c) override {
    if (c.input(0).rank() != 0) return invalid_argument("the predicate must be a scalar, not {}", c.input(0).str());
    c.set_output(0, c.input(0));
    return {};
  }
};

class AbortKernel final : public ComputeKernel {
 public:
  explicit AbortKernel(const KernelInit& init) : message_(init.attr<std::string>("error_msg")) {}
  Status compute(KernelContext&) override { return make_error(Code::kFailedPrecondition, "aborted: {}", message_); }

 private:
  const std::string message_;
};

Status switch_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 0));
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, c.input(0));
  return {};
}

Status loop_cond_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(0, 0));
  return scalar_shape(c);
}

/// What all inputs have in common.
Status merge_shape(ShapeContext& c) {
  PartialShape shape = c.input(0);
  for (int i = 1; i < c.num_inputs() && shape.has_rank(); ++i) {
    const PartialShape& other = c.input(i);
    if (!other.has_rank() || other.rank() != shape.rank()) {
      shape = PartialShape::unknown();
      break;
    }
    for (int d = 0; d < shape.rank(); ++d)
      if (shape[d] != other[d]) shape.set(d, -1);
  }
  c.set_output(0, shape);
  c.set_output(1, PartialShape::scalar());
  return {};
}

/// Of the branch not taken no gradient comes, so zeros stand in: they live when that branch does. By a handle the
/// gradient is that of its variable.
Status switch_gradient(GradientContext& c) {
  std::vector<Output> branches;
  for (int i = 0; i < 2; ++i) {
    if (c.dy(i)) {
      branches.push_back(c.dy(i));
    } else if (c.output(i).dtype() == DType::kResource) {
      const Output zero = c.constant(*Tensor::zeros(c.dy(1 - i).dtype(), Shape{}));
      branches.push_back(c.op("Fill", {c.op("VariableShape", {c.output(i)}), zero}));
    } else {
      branches.push_back(c.op("ZerosLike", {c.output(i)}));
    }
  }
  c.set_dx(0, c.op("Merge", std::move(branches)));
  return {};
}

/// Each input gets the gradient when it was the one that lived.
Status merge_gradient(GradientContext& c) {
  if (!c.dy(0)) return {};
  if (c.num_inputs() != 2) return make_error(Code::kUnimplemented, "no gradient of {} inputs", c.num_inputs());
  const Output second = c.op("Equal", {c.output(1), c.constant(Tensor::scalar<int32_t>(1))});
  const std::vector<Output> branches = c.ops("Switch", {c.dy(0), second});
  for (int i = 0; i < 2; ++i) c.set_dx(i, branches[static_cast<size_t>(i)]);
  return {};
}

/// Dead where the data was, as the gradient of what a branch makes is where that is not taken.
Status alive_gradient(GradientContext& c) {
  if (c.dy(0)) c.set_dx(0, c.ops("Switch", {c.dy(0), c.output(1)})[1]);
  return {};
}

Status no_loop_gradient(GradientContext&) {
  return make_error(Code::kUnimplemented, "a while loop of Enter and Exit has no gradient");
}

}  // namespace

void register_control_flow_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto add = [&](OpDef op, ControlFlow flow, Gradient gradient) {
    const std::string name = op.name();
    ops.add(op.control_flow(flow).stateful(), std::move(gradient));
    kernels.add(name, DeviceKind::kCpu, {}, {KernelKind::kControlFlow, make_control_flow});
  };
  add(OpDef("Switch")
          .input("data: T")
          .input("pred: bool")
          .output("output_false: T")
          .output("output_true: T")
          .attr("T: type")
          .shape(switch_shape)
          .doc("Passes data on to output_true or output_false as the scalar pred says. What depends on the other is "
               "dead "
               "and does not run."),
      ControlFlow::kSwitch, gradient(switch_gradient));
  add(OpDef("_SwitchN")
          .input("data: T")
          .input("output_index: int32")
          .output("outputs: num_outs * T")
          .attr("num_outs: int >= 1")
          .attr("T: type")
          .shape(switch_shape)
          .doc("Passes data on to the output of number output_index, a scalar; to the last when there is no such "
               "output. "
               "What depends on the others is dead."),
      ControlFlow::kSwitch, not_differentiable("only the lowering of Case makes it"));
  add(OpDef("Merge")
          .input("inputs: N * T")
          .output("output: T")
          .output("value_index: int32")
          .attr("N: int >= 1")
          .attr("T: type")
          .shape(merge_shape)
          .doc("Passes the first live input on, with its index. Dead when all inputs are."),
      ControlFlow::kMerge, gradient(merge_gradient));
  add(OpDef("Enter")
          .input("data: T")
          .output("output: T")
          .attr("frame_name: string")
          .attr("is_constant: bool = false")
          .attr("parallel_iterations: int = 10")
          .attr("T: type")
          .shape([](ShapeContext& c) -> Status {
            c.set_output(0, c.input(0));
            return {};
          })
          .doc("Brings data into the loop frame_name: to its first iteration or, with is_constant, to every iteration. "
               "At "
               "most parallel_iterations overlap."),
      ControlFlow::kEnter, gradient(no_loop_gradient));
  add(OpDef("Exit")
          .input("data: T")
          .output("output: T")
          .attr("T: type")
          .shape(unchanged_shape)
          .doc("Brings data out of its loop when the loop ends."),
      ControlFlow::kExit, gradient(no_loop_gradient));
  add(OpDef("NextIteration")
          .input("data: T")
          .output("output: T")
          .attr("T: type")
          .shape(unchanged_shape)
          .doc("Brings data to the next iteration of its loop."),
      ControlFlow::kNextIteration, gradient(no_loop_gradient));
  add(OpDef("ControlTrigger").shape(no_outputs).doc("Runs after its control inputs, the dead ones too."),
      ControlFlow::kTrigger, not_differentiable("it has no outputs"));
  add(OpDef("_Alive")
          .input("data: T")
          .output("output: T")
          .output("alive: bool")
          .attr("T: type")
          .shape([](ShapeContext& c) -> Status {
            c.set_output(1, PartialShape::scalar());
            return {};
          })
          .doc("data and true; where data is dead, a vector without elements and false. The gradients of loops keep "
               "values of branches by it."),
      ControlFlow::kAlive, gradient(alive_gradient));
  ops.add(OpDef("LoopCond")
              .input("input: bool")
              .output("output: bool")
              .shape(loop_cond_shape)
              .stateful()
              .doc("Marks the predicate of a loop, a scalar, and passes it on."),
          not_differentiable("a predicate is not continuous"));
  kernels.add<LoopCondition>("LoopCond", DeviceKind::kCpu, {});
  kernels.add<LoopCondition>("LoopCond", DeviceKind::kCuda, {}, {{0}, {0}});
  ops.add(OpDef("Abort")
              .attr("error_msg: string = ''")
              .attr("exit_without_error: bool = false")
              .shape(no_outputs)
              .stateful()
              .doc("Fails the step with error_msg. The process goes on, unlike TensorFlow's."),
          not_differentiable("it has no outputs"));
  kernels.add<AbortKernel>("Abort", DeviceKind::kCpu, {});
}

}  // namespace troupe
