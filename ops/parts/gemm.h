// SPDX-License-Identifier: Apache-2.0
// Products of row-major matrices in memory: what MatMul and the other ops that multiply are made of.
#pragma once
#include <cstdint>
#include <vector>

#include "ops/parts/type_dispatch.h"

namespace troupe {

/// Types that gemm() multiplies; 16-bit floats go through float32 (ops/parts/through_float32.h).
using GemmTypes = TypeList<float, double, int32_t, int64_t, complex64, complex128>;

/// c[m,n] = op(a) op(b), all row-major and dense, where op transposes when `ta` or `tb`: a is [m,k], or [k,m] with ta;
/// b is [k,n], or [n,k] with tb. k = 0 gives zeros. Integers wrap around. Any thread; uses the helper team of the
/// calling one. False when the library below fails.
/// float runs on oneDNN where that is present, the rest on Eigen.
template <class T> bool gemm(const T* a, bool ta, const T* b, bool tb, T* c, int64_t m, int64_t n, int64_t k);

/// c += op(a) op(b), else as gemm().
bool gemm_add(const float* a, bool ta, const float* b, bool tb, float* c, int64_t m, int64_t n, int64_t k);

/// Rows of a product: c is [m,n], a [m,k], b [k,n].
struct GemmSizes {
  int64_t m, n, k;
};
/// c = factor a op(b) with the rows of each so many elements apart, else as gemm().
bool gemm_strided(const GemmSizes& sizes, float factor, const float* a, int64_t row_of_a, const float* b, bool tb,
                  int64_t row_of_b, float* c, int64_t row_of_c);

/// Product i of `count` ones of the same sizes is of matrix xs[i] of a and ys[i] of b, one after the other in memory.
/// Large ones are multiplied one by one with all threads, small ones with a thread each.
template <class T>
bool gemm_batch(int threads, const T* a, bool ta, const std::vector<int64_t>& xs, const T* b, bool tb,
                const std::vector<int64_t>& ys, T* c, int64_t m, int64_t n, int64_t k);

/// Types that operands may have; each is multiplied as one of GemmTypes.
using OperandTypes =
    TypeList<float, double, float16, bfloat16, int8_t, uint8_t, int16_t, int32_t, int64_t, complex64, complex128>;

/// What a product that gives T is computed in: one of GemmTypes.
template <class T> using Computed = std::conditional_t<std::is_same_v<T, int16_t>, int32_t, Arithmetic<T>>;

/// The elements of x, one of OperandTypes, as `to`: widened, or rounded, or x itself where nothing changes.
Result<Tensor> converted(const KernelContext& c, const Tensor& x, DType to);

}  // namespace troupe
