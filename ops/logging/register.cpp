// SPDX-License-Identifier: Apache-2.0
// Calls every function of the list.
#include "ops/logging/register.h"

namespace troupe {

void register_logging_ops(OpRegistry& ops, KernelRegistry& kernels) {
  register_print_ops(ops, kernels);
  register_summary_ops(ops, kernels);
  register_summary_writer_ops(ops, kernels);
}

}  // namespace troupe
