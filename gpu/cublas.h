// SPDX-License-Identifier: Apache-2.0
// Matrix products by cuBLASLt. Implemented in gpu/cuda/cublas_blas.cpp.
#pragma once
#include <memory>

#include "gpu/blas.h"

namespace troupe::gpu {

/// The library, for one device on a card. It is opened when first asked for, so programs start without it. Products are
/// chosen once for each problem and alignment; what they need to work in comes from the device's allocator.
/// Errors: kUnavailable naming the library that is not there, or what it lacks.
Result<std::shared_ptr<Blas>> make_cublas(int card);

}  // namespace troupe::gpu
