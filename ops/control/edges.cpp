// SPDX-License-Identifier: Apache-2.0
// _Send and _Recv: where the graph of a step was cut, in a part of it that one task runs (plan/cut.h makes them). The
// executor carries them out. Source: TensorFlow's _Send and _Recv.
#include "ops/control/register.h"

namespace troupe {

void register_edge_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const auto add = [&](OpDef op, ControlFlow flow) {
    const std::string name = op.name();
    ops.add(op.control_flow(flow).stateful(), not_differentiable("a step is cut after its gradients were made"));
    const auto make = [](const KernelInit&) -> Result<std::unique_ptr<Kernel>> {
      return std::unique_ptr<Kernel>(new BuiltinKernel(Builtin::kControlFlow));
    };
    kernels.add(name, DeviceKind::kCpu, {}, {KernelKind::kControlFlow, make});
  };
  add(OpDef("_Send")
          .input("tensors: T")
          .attr("edge: int >= 0")
          .attr("T: list(type)")
          .shape([](ShapeContext& c) -> Status {
            if (c.num_inputs() > 1) return invalid_argument("takes one tensor or none, got {}", c.num_inputs());
            return {};
          })
          .doc("Sends its tensor or, without one, word that its control inputs have run, to the _Recv of the same "
               "edge, which is on another device or task. What is dead is sent as dead. The cut of a step makes it."),
      ControlFlow::kSend);
  add(OpDef("_Recv")
          .output("tensor: tensor_type")
          .attr("edge: int >= 0")
          .attr("tensor_type: type")
          .attr("shape: shape = <unknown>")
          .attr("has_value: bool = true")
          .attr("conditional: bool = false")
          .shape([](ShapeContext& c) -> Status {
            c.set_output(0, c.attr<PartialShape>("shape"));
            return {};
          })
          .doc("Waits for what the _Send of the same edge sends; conditional: it may be dead. Its control inputs only "
               "tell which loop it is in: there it gets something in every iteration. The cut of a step makes it."),
      ControlFlow::kRecv);
}

}  // namespace troupe
