// SPDX-License-Identifier: Apache-2.0
// Random numbers: TensorFlow's for the same seeds.
// The list of the files here that register ops: one function for each, of its name.
#pragma once
#include "ops/parts/gpu_variants.h"
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// Registers all of them, by calling each of those below.
void register_random_ops(OpRegistry& ops, KernelRegistry& kernels);

void register_index_shuffle_ops(OpRegistry&, KernelRegistry&);
void register_random_binomial_ops(OpRegistry&, KernelRegistry&);
void register_random_float_ops(OpRegistry&, KernelRegistry&);
void register_random_gamma_ops(OpRegistry&, KernelRegistry&);
void register_random_generator_ops(OpRegistry&, KernelRegistry&);
void register_random_integer_ops(OpRegistry&, KernelRegistry&);
void register_random_truncated_ops(OpRegistry&, KernelRegistry&);
void register_sobol_ops(OpRegistry&, KernelRegistry&);

// Of the files of kernels of GPUs.
TROUPE_GPU_VARIANTS(register_random_gpu)

}  // namespace troupe
