// SPDX-License-Identifier: Apache-2.0
// Marks functions that kernels of GPUs call as well as the host.
#pragma once

#ifdef __CUDACC__
#define TROUPE_HOST_DEVICE __host__ __device__
#else
#define TROUPE_HOST_DEVICE
#endif
