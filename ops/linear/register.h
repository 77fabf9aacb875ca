// SPDX-License-Identifier: Apache-2.0
// Matrices: products, equations, decompositions.
// The list of the files here that register ops: one function for each, of its name.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// Registers all of them, by calling each of those below.
void register_linear_ops(OpRegistry& ops, KernelRegistry& kernels);

void register_banded_ops(OpRegistry&, KernelRegistry&);
void register_cholesky_ops(OpRegistry&, KernelRegistry&);
void register_eigen_values_ops(OpRegistry&, KernelRegistry&);
void register_einsum_ops(OpRegistry&, KernelRegistry&);
void register_least_squares_ops(OpRegistry&, KernelRegistry&);
void register_matmul_ops(OpRegistry&, KernelRegistry&);
void register_matrix_inverse_ops(OpRegistry&, KernelRegistry&);
void register_matrix_solve_ops(OpRegistry&, KernelRegistry&);
void register_qr_ops(OpRegistry&, KernelRegistry&);
void register_schur_ops(OpRegistry&, KernelRegistry&);
void register_svd_ops(OpRegistry&, KernelRegistry&);

/// Kernels of GPUs by their matrix libraries.
void register_matmul_gpu(KernelRegistry&);

}  // namespace troupe
