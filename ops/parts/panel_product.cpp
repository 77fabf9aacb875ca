// SPDX-License-Identifier: Apache-2.0
// The sums of some rows stay in registers while a panel is read once: as many rows as the processor has registers for.
#include "ops/parts/panel_product.h"

#include <algorithm>
#include <cstring>

#include "ops/parts/instruction_sets.h"

namespace troupe {
namespace {

constexpr int64_t kLine = 16;  // floats of a line of the cache
constexpr int64_t kFewGroups = 8;

/// `kRows` rows by `kVectors` vectors of `kLanes` columns at a time. With `next` a line of the cache from there on is
/// asked for with each row of b. Without the pragmas GCC keeps the sums in memory.
template <int kLanes, int kVectors, int kRows>
[[gnu::always_inline]] inline void multiply_tile(const float* a, int64_t row_of_a, int64_t k, const float* b, bool add,
                                                 const float* next, float* sums) {
  typedef float Vector __attribute__((vector_size(kLanes * sizeof(float))));
  for (int64_t column = 0; column < kPanelColumns; column += kVectors * kLanes) {
    Vector sum[kRows][kVectors] = {};
    if (add) {
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v)
          std::memcpy(&sum[r][v], sums + r * kPanelColumns + column + v * kLanes, sizeof(Vector));
    }
    for (int64_t i = 0; i < k; ++i) {
      if (next) __builtin_prefetch(next + i * kLine);
      Vector x[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v)
        std::memcpy(&x[v], b + i * kPanelColumns + column + v * kLanes, sizeof(Vector));
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const float factor = a[r * row_of_a + i];
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sum[r][v] += factor * x[v];
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v)
        std::memcpy(sums + r * kPanelColumns + column + v * kLanes, &sum[r][v], sizeof(Vector));
  }
}

/// Vectors of so many rows at a time: the most whose sums are at most kSums.
template <int kLanes, int kSums> constexpr int vectors_of(int rows) {
  int out = static_cast<int>(kPanelColumns) / kLanes;
  while (out > 1 && out * rows > kSums) out /= 2;
  return out;
}

/// `rows` rows, which are at most `kMost`.
template <int kLanes, int kSums, int kMost>
[[gnu::always_inline]] inline void multiply_few(const float* a, int64_t row_of_a, int64_t rows, int64_t k,
                                                const float* b, bool add, const float* next, float* sums) {
  if (rows == kMost)
    return multiply_tile<kLanes, vectors_of<kLanes, kSums>(kMost), kMost>(a, row_of_a, k, b, add, next, sums);
  if constexpr (kMost > 1) multiply_few<kLanes, kSums, kMost - 1>(a, row_of_a, rows, k, b, add, next, sums);
}

/// All rows, in groups of at most `kMost` and about the same number. They go through a part of the panel that fits the
/// first-level cache before the next part is read, which the last groups ask for. Of few groups these are most, so that
/// both parts must fit: kPartOfFew rows of the panel, else kPart.
template <int kLanes, int kSums, int kMost, int64_t kPartOfFew, int64_t kPart>
[[gnu::always_inline]] inline void multiply_rows(const float* a, int64_t rows, int64_t k, const float* b, bool add,
                                                 float* sums) {
  if (k == 0 && !add) std::fill_n(sums, rows * kPanelColumns, 0.0f);
  const int64_t groups = (rows + kMost - 1) / kMost;
  const int64_t part = groups == 1 ? k : groups <= kFewGroups ? kPartOfFew : kPart;
  const int64_t asking = std::max<int64_t>(1, groups - kPanelColumns / kLine);  // from this group on, a line each row
  for (int64_t from = 0; from < k; from += part, add = true)
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t row = rows * g / groups, end = rows * (g + 1) / groups;
      const float* const here = b + from * kPanelColumns;
      const float* const next = g >= asking ? here + part * kPanelColumns + (g - asking) * part * kLine : nullptr;
      multiply_few<kLanes, kSums, kMost>(a + row * k + from, k, end - row, std::min(part, k - from), here, add, next,
                                         sums + row * kPanelColumns);
    }
}

using Multiply = void (*)(const float* a, int64_t rows, int64_t k, const float* b, bool add, float* sums);

void multiply_plain(const float* a, int64_t rows, int64_t k, const float* b, bool add, float* sums) {
  multiply_rows<4, 8, 2, 128, 128>(a, rows, k, b, add, sums);
}
#if defined(__x86_64__)
TROUPE_AVX2_AND_FMA void multiply_avx2(const float* a, int64_t rows, int64_t k, const float* b, bool add, float* sums) {
  multiply_rows<8, 12, 6, 32, 96>(a, rows, k, b, add, sums);
}
TROUPE_AVX512 void multiply_avx512(const float* a, int64_t rows, int64_t k, const float* b, bool add, float* sums) {
  multiply_rows<16, 28, 7, 128, 128>(a, rows, k, b, add, sums);
}
#endif

/// The best for this processor.
Multiply chosen() {
#if defined(__x86_64__)
  if (has_avx512()) return multiply_avx512;
  if (has_avx2_and_fma()) return multiply_avx2;
#endif
  return multiply_plain;
}

}  // namespace

bool panels_are_fast() { return has_avx512() || has_avx2_and_fma(); }

void multiply_panel(const float* a, int64_t rows, int64_t k, const float* b, bool add, float* sums) {
  static const Multiply multiply = chosen();
  multiply(a, rows, k, b, add, sums);
}

}  // namespace troupe
