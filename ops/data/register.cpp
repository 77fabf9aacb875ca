// SPDX-License-Identifier: Apache-2.0
// Calls every function of the list.
#include "ops/data/register.h"

namespace troupe {

void register_data_ops(OpRegistry& ops, KernelRegistry& kernels) {
  register_data_csv_ops(ops, kernels);
  register_data_file_ops(ops, kernels);
  register_data_function_ops(ops, kernels);
  register_data_group_ops(ops, kernels);
  register_data_iterator_ops(ops, kernels);
  register_data_join_ops(ops, kernels);
  register_data_reduce_ops(ops, kernels);
  register_data_saved_ops(ops, kernels);
  register_data_shuffle_ops(ops, kernels);
  register_data_source_ops(ops, kernels);
  register_data_stage_ops(ops, kernels);
}

}  // namespace troupe
