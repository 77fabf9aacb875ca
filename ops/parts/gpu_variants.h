// SPDX-License-Identifier: Apache-2.0
// Functions that register kernels of GPUs are there twice: once of kernels that nvcc compiled, in namespace on_cuda,
// and once of the same that run on the host in the fake's streams, in on_fake (gpu/launch.h). An engine takes one of
// them.
#pragma once
#include "troupe/kernel.h"

/// Declares `name` of both, in namespace troupe.
#define TROUPE_GPU_VARIANTS(name) \
  namespace on_cuda {             \
  void name(KernelRegistry&);     \
  }                               \
  namespace on_fake {             \
  void name(KernelRegistry&);     \
  }
