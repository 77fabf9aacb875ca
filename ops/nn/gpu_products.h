// SPDX-License-Identifier: Apache-2.0
// Matrix products inside kernels of GPUs that are made of several.
#pragma once
#include "gpu/blas.h"

namespace troupe {

/// c [m,n] = op(a) op(b), added to what c holds with `adds`. Any size may be 0.
struct GpuProduct {
  DType dtype;
  int64_t m, n, k;
  bool ta = false, tb = false, adds = false;
  Status run(const gpu::Compute& gpu, const void* a, const void* b, void* c) const {
    if (m == 0 || n == 0) return {};
    if (k == 0) return adds ? Status() : gpu.stream.fill(c, 0, static_cast<size_t>(m * n) * size_of(dtype));
    gpu::Product p{.dtype = dtype, .m = m, .n = n, .k = k, .ta = ta, .tb = tb, .a = a, .b = b, .c = c};
    p.beta = adds ? 1 : 0;
    return gpu.blas->multiply(gpu, p);
  }
};

/// Zeros in elements [begin, end) of y.
inline Status clear_elements(const gpu::Compute& gpu, Tensor& y, int64_t begin, int64_t end) {
  if (begin >= end) return {};
  const size_t size = size_of(y.dtype());
  return gpu.stream.fill(static_cast<char*>(y.mutable_address()) + static_cast<size_t>(begin) * size, 0,
                         static_cast<size_t>(end - begin) * size);
}

}  // namespace troupe
