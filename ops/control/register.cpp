// SPDX-License-Identifier: Apache-2.0
// Calls every function of the list.
#include "ops/control/register.h"

namespace troupe {

void register_control_ops(OpRegistry& ops, KernelRegistry& kernels) {
  register_collective_ops(ops, kernels);
  register_control_flow_ops(ops, kernels);
  register_edge_ops(ops, kernels);
  register_optional_ops(ops, kernels);
  register_stack_ops(ops, kernels);
  register_stand_in_ops(ops, kernels);
  register_tensor_array_ops(ops, kernels);
  register_tensor_list_ops(ops, kernels);
  register_tensor_list_kernels(kernels);
}

}  // namespace troupe
