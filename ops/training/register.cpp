// SPDX-License-Identifier: Apache-2.0
// Calls every function of the list.
#include "ops/training/register.h"

namespace troupe {

void register_training_ops(OpRegistry& ops, KernelRegistry& kernels) { register_update_ops(ops, kernels); }

}  // namespace troupe
