// SPDX-License-Identifier: Apache-2.0
// The parts of the family of matrices, each a file of its own. register_matmul_ops calls them.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

void register_matrix_inverse_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_matrix_solve_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_least_squares_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_cholesky_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_qr_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_eigen_values_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_svd_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_schur_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_banded_ops(OpRegistry& ops, KernelRegistry& kernels);

}  // namespace troupe
