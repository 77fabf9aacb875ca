// SPDX-License-Identifier: Apache-2.0
// Branches and loops by the white paper, and what TensorFlow's keep values in: lists, arrays, stacks, optionals.
// The list of the files here that register ops: one function for each, of its name.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

namespace gpu {
class CollectiveRunner;  // gpu/collective_runner.h
}

/// Registers all of them, by calling each of those below.
void register_control_ops(OpRegistry& ops, KernelRegistry& kernels);

void register_collective_ops(OpRegistry&, KernelRegistry&);
void register_control_flow_ops(OpRegistry&, KernelRegistry&);
void register_edge_ops(OpRegistry&, KernelRegistry&);
void register_optional_ops(OpRegistry&, KernelRegistry&);
void register_stack_ops(OpRegistry&, KernelRegistry&);
void register_stand_in_ops(OpRegistry&, KernelRegistry&);
void register_tensor_array_ops(OpRegistry&, KernelRegistry&);
void register_tensor_list_ops(OpRegistry&, KernelRegistry&);
void register_tensor_list_kernels(KernelRegistry&);

/// Those of engines whose cards a library joins.
void register_card_collective_ops(OpRegistry&, KernelRegistry&, const std::shared_ptr<gpu::CollectiveRunner>& runner);

}  // namespace troupe
