// SPDX-License-Identifier: Apache-2.0
// The loop by which matrices are factored: along rows, and with the processor's widest instructions. Implemented in
// ops/linear/rows.cpp.
#pragma once
#include <algorithm>
#include <cstdint>

namespace troupe {

/// x[j] -= factors[k] * rows[k * apart + j] for k < count, in this order, and j < n. x is none of the rows.
template <class T>
[[gnu::always_inline]] inline void subtract_rows_body(T* x, const T* factors, const T* rows, int64_t apart,
                                                      int64_t count, int64_t n) {
  constexpr int64_t kBlock = 128 / sizeof(T);  // columns whose differences are in registers
  int64_t j = 0;
  for (; j + kBlock <= n; j += kBlock) {
    T left[kBlock];
    std::copy_n(x + j, kBlock, left);
    const T* row = rows + j;
    for (int64_t k = 0; k < count; ++k, row += apart)
      for (int64_t q = 0; q < kBlock; ++q) left[q] -= factors[k] * row[q];
    std::copy_n(left, kBlock, x + j);
  }
  if (j == n) return;
  for (int64_t k = 0; k < count; ++k)
    for (int64_t q = j; q < n; ++q) x[q] -= factors[k] * rows[k * apart + q];
}
template <class T> void subtract_rows(T* x, const T* factors, const T* rows, int64_t apart, int64_t count, int64_t n) {
  subtract_rows_body(x, factors, rows, apart, count, n);
}
void subtract_rows(float* x, const float* factors, const float* rows, int64_t apart, int64_t count, int64_t n);
void subtract_rows(double* x, const double* factors, const double* rows, int64_t apart, int64_t count, int64_t n);

}  // namespace troupe
