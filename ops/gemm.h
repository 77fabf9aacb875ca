// SPDX-License-Identifier: Apache-2.0
// Products of row-major matrices in memory: what MatMul and the other ops that multiply are made of.
#pragma once
#include <cstdint>

#include "ops/type_dispatch.h"

namespace troupe {

/// Types that gemm() multiplies; 16-bit floats go through float32 (ops/through_float32.h).
using GemmTypes = TypeList<float, double, int32_t, int64_t, complex64>;

/// c[m,n] = op(a) op(b), all row-major and dense, where op transposes when `ta` or `tb`: a is [m,k], or [k,m] with ta;
/// b is [k,n], or [n,k] with tb. k = 0 gives zeros. Integers wrap around. Any thread; uses the helper team of the
/// calling one. False when the library below fails.
/// float runs on oneDNN where that is present, the rest on Eigen.
template <class T> bool gemm(const T* a, bool ta, const T* b, bool tb, T* c, int64_t m, int64_t n, int64_t k);

}  // namespace troupe
