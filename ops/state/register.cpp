// SPDX-License-Identifier: Apache-2.0
// Calls every function of the list.
#include "ops/state/register.h"

namespace troupe {

void register_state_ops(OpRegistry& ops, KernelRegistry& kernels) {
  register_accumulator_ops(ops, kernels);
  register_barrier_ops(ops, kernels);
  register_event_count_ops(ops, kernels);
  register_mutex_ops(ops, kernels);
  register_queue_ops(ops, kernels);
  register_resource_gather_ops(ops, kernels);
  register_resource_scatter_ops(ops, kernels);
  register_save_restore_ops(ops, kernels);
  register_staging_map_ops(ops, kernels);
  register_staging_ops(ops, kernels);
  register_table_ops(ops, kernels);
  register_variable_ops(ops, kernels);
  register_warm_start_ops(ops, kernels);
}

}  // namespace troupe
