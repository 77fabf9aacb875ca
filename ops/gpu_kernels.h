// SPDX-License-Identifier: Apache-2.0
// The kernels of GPUs of every family, in both variants: on_cuda::register_gpu_kernels is in programs that nvcc helped
// to build, on_fake::register_gpu_kernels in those that link the fake. Beside make_op_library, which has those of
// CPUs.
#pragma once
#include "ops/parts/gpu_variants.h"

namespace troupe {

TROUPE_GPU_VARIANTS(register_gpu_kernels)

/// Those of int32 that compute at the host, in both variants; before others of the same ops, which they go before.
void register_shapes_gpu(KernelRegistry& kernels);

/// Adds those that nvcc compiled, for who only looks which there are. False: this build has none.
bool add_cuda_kernels(KernelRegistry& kernels);

}  // namespace troupe
