// SPDX-License-Identifier: Apache-2.0
// The optimizers' updates of variables.
// The list of the files here that register ops: one function for each, of its name.
#pragma once
#include "ops/parts/gpu_variants.h"
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// Registers all of them, by calling each of those below.
void register_training_ops(OpRegistry& ops, KernelRegistry& kernels);

void register_update_ops(OpRegistry&, KernelRegistry&);

// Of the files of kernels of GPUs.
TROUPE_GPU_VARIANTS(register_sparse_updates_gpu)
TROUPE_GPU_VARIANTS(register_updates_gpu)

}  // namespace troupe
