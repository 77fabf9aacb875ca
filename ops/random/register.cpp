// SPDX-License-Identifier: Apache-2.0
// Calls every function of the list.
#include "ops/random/register.h"

namespace troupe {

void register_random_ops(OpRegistry& ops, KernelRegistry& kernels) {
  register_index_shuffle_ops(ops, kernels);
  register_random_binomial_ops(ops, kernels);
  register_random_float_ops(ops, kernels);
  register_random_gamma_ops(ops, kernels);
  register_random_generator_ops(ops, kernels);
  register_random_integer_ops(ops, kernels);
  register_random_truncated_ops(ops, kernels);
  register_sobol_ops(ops, kernels);
}

}  // namespace troupe
