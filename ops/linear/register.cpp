// SPDX-License-Identifier: Apache-2.0
// Calls every function of the list.
#include "ops/linear/register.h"

namespace troupe {

void register_linear_ops(OpRegistry& ops, KernelRegistry& kernels) {
  register_banded_ops(ops, kernels);
  register_cholesky_ops(ops, kernels);
  register_eigen_values_ops(ops, kernels);
  register_einsum_ops(ops, kernels);
  register_least_squares_ops(ops, kernels);
  register_matmul_ops(ops, kernels);
  register_matrix_inverse_ops(ops, kernels);
  register_matrix_solve_ops(ops, kernels);
  register_qr_ops(ops, kernels);
  register_schur_ops(ops, kernels);
  register_svd_ops(ops, kernels);
}

}  // namespace troupe
