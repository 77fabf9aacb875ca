// SPDX-License-Identifier: Apache-2.0
// The sums of some rows stay in registers while a panel is read once: as many rows as the processor has registers for.
#include "ops/parts/panel_product.h"

#include <algorithm>

#include "devices/parallel.h"
#include "ops/parts/instruction_sets.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

constexpr int64_t kLine = 16;  // floats of a line of the cache
constexpr int64_t kFewGroups = 8;

/// How an instruction set multiplies. `kSums` vectors of `kLanes` sums stay in registers, of at most `kRows` rows at a
/// time, and of a multiple of kLeastVectors vectors of columns. Rows go through kPart rows of a panel before they go
/// through the next, and where they are few through kPartOfFew.
template <int64_t kColumnsOf, int kLanesOf, int kSumsOf, int kRowsOf, int kLeastVectorsOf, int64_t kPartOfFewOf,
          int64_t kPartOf>
struct Way {
  static constexpr int64_t kColumns = kColumnsOf, kPartOfFew = kPartOfFewOf, kPart = kPartOf;
  static constexpr int kLanes = kLanesOf, kSums = kSumsOf, kRows = kRowsOf, kLeastVectors = kLeastVectorsOf;

  /// Vectors of so many rows at a time: the most whose sums are at most kSums and that the columns are a multiple of.
  static constexpr int vectors(int rows) {
    int out = static_cast<int>(kColumns) / kLanes;
    while (out > kLeastVectors && out * rows > kSums) out /= 2;
    return out;
  }
};

/// `kRows` rows by some vectors of columns at a time. With kAsks a line of the cache from `next` on is asked for with
/// each row of b. Without the pragmas GCC keeps the sums in memory, and with memcpy() for vectors takes them through
/// it.
template <class W, int kRows, bool kAsks>
[[gnu::always_inline]] inline void multiply_tile(const float* a, int64_t row_of_a, int64_t k, const float* b,
                                                 int64_t columns, bool add, const float* next, float* sums) {
  constexpr int kVectors = W::vectors(kRows);
  constexpr int64_t kRow = W::kColumns / W::kLanes;  // vectors of a row of b or sums
  typedef float Vector __attribute__((vector_size(W::kLanes * sizeof(float)), aligned(alignof(float)), may_alias));
  for (int64_t column = 0; column < columns; column += kVectors * W::kLanes) {
    const Vector* const from = reinterpret_cast<const Vector*>(b + column);
    Vector* const to = reinterpret_cast<Vector*>(sums + column);
    Vector sum[kRows][kVectors] = {};
    if (add) {
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 12
        for (int v = 0; v < kVectors; ++v) sum[r][v] = to[r * kRow + v];
    }
    for (int64_t i = 0; i < k; ++i) {
      if constexpr (kAsks) __builtin_prefetch(next + i * kLine);
      Vector x[kVectors];
#pragma GCC unroll 12
      for (int v = 0; v < kVectors; ++v) x[v] = from[i * kRow + v];
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        const float factor = a[r * row_of_a + i];
#pragma GCC unroll 12
        for (int v = 0; v < kVectors; ++v) sum[r][v] += factor * x[v];
      }
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 12
      for (int v = 0; v < kVectors; ++v) to[r * kRow + v] = sum[r][v];
  }
}

/// `rows` rows, which are at most `kMost`; with `next`, unless that is null, as of multiply_tile().
template <class W, int kMost>
[[gnu::always_inline]] inline void multiply_few(const float* a, int64_t row_of_a, int64_t rows, int64_t k,
                                                const float* b, int64_t columns, bool add, const float* next,
                                                float* sums) {
  if (rows == kMost && next) return multiply_tile<W, kMost, true>(a, row_of_a, k, b, columns, add, next, sums);
  if (rows == kMost) return multiply_tile<W, kMost, false>(a, row_of_a, k, b, columns, add, next, sums);
  if constexpr (kMost > 1) multiply_few<W, kMost - 1>(a, row_of_a, rows, k, b, columns, add, next, sums);
}

/// All rows, in groups of at most W::kRows and about the same number. They go through a part of the panel that fits the
/// first-level cache before the next part is read, which the last groups ask for. Of few groups these are most, so that
/// both parts must fit. A panel that is read but once, from its beginning to its end, is one part.
template <class W>
[[gnu::always_inline]] inline void multiply_rows(const float* a, int64_t rows, int64_t k, const float* b,
                                                 int64_t columns, bool add, float* sums) {
  if (k == 0 && !add) std::fill_n(sums, rows * W::kColumns, 0.0f);
  const int64_t groups = (rows + W::kRows - 1) / W::kRows;
  const bool once = groups == 1 && W::vectors(static_cast<int>(rows)) * W::kLanes == W::kColumns;
  const int64_t part = once ? k : groups <= kFewGroups ? W::kPartOfFew : W::kPart;
  // From this group on, a line each row.
  const int64_t asking = once ? groups : std::max<int64_t>(0, groups - W::kColumns / kLine);
  const int64_t least = rows / std::max<int64_t>(groups, 1), larger = rows - least * groups;  // groups of one row more
  for (int64_t from = 0; from < k; from += part, add = true)
    for (int64_t g = 0, row = 0, count; g < groups; ++g, row += count) {
      count = g < larger ? least + 1 : least;
      const float* const here = b + from * W::kColumns;
      const float* const next = g >= asking ? here + part * W::kColumns + (g - asking) * part * kLine : nullptr;
      multiply_few<W, W::kRows>(a + row * k + from, k, count, std::min(part, k - from), here, columns, add, next,
                                sums + row * W::kColumns);
    }
}

struct Multiplier {
  int64_t columns;
  void (*multiply)(const float* a, int64_t rows, int64_t k, const float* b, int64_t columns, bool add, float* sums);
};

using Plain = Way<64, 4, 8, 2, 1, 128, 128>;
void multiply_plain(const float* a, int64_t rows, int64_t k, const float* b, int64_t columns, bool add, float* sums) {
  multiply_rows<Plain>(a, rows, k, b, columns, add, sums);
}
#if defined(__x86_64__)
// Four rows by three vectors take 7 loads for 12 products, six rows by two take 8 and are a fifth slower.
using Avx2 = Way<48, 8, 12, 4, 3, 64, 96>;
TROUPE_AVX2_AND_FMA void multiply_avx2(const float* a, int64_t rows, int64_t k, const float* b, int64_t columns,
                                       bool add, float* sums) {
  multiply_rows<Avx2>(a, rows, k, b, columns, add, sums);
}
using Avx512 = Way<64, 16, 28, 7, 1, 128, 128>;
TROUPE_AVX512 void multiply_avx512(const float* a, int64_t rows, int64_t k, const float* b, int64_t columns, bool add,
                                   float* sums) {
  multiply_rows<Avx512>(a, rows, k, b, columns, add, sums);
}
#endif

/// The best for this processor.
const Multiplier& chosen() {
  static const Multiplier best = []() -> Multiplier {
#if defined(__x86_64__)
    if (has_avx512()) return {Avx512::kColumns, multiply_avx512};
    if (has_avx2_and_fma()) return {Avx2::kColumns, multiply_avx2};
#endif
    return {Plain::kColumns, multiply_plain};
  }();
  return best;
}

/// Rows from `row` to `end` of a panel of `width` columns, of which b has `columns` from `b` on.
void copy_rows(const float* b, bool tb, int64_t row_of_b, int64_t row, int64_t end, int64_t columns, int64_t width,
               float* panel) {
  for (int64_t i = row; i < end; ++i) {
    if (!tb) std::copy_n(b + i * row_of_b, columns, panel + i * width);
    std::fill(panel + i * width + columns, panel + (i + 1) * width, 0.0f);
  }
  for (int64_t j = 0; tb && j < columns; ++j)
    for (int64_t i = row; i < end; ++i) panel[i * width + j] = b[j * row_of_b + i];
}

}  // namespace

bool panels_are_fast() { return has_avx512() || has_avx2_and_fma(); }
bool panels_beat_onednn() { return !has_avx512() && has_avx2_and_fma(); }

int64_t panel_columns() { return chosen().columns; }

Result<Tensor> in_panels(const KernelContext& context, const float* b, bool tb, int64_t k, int64_t n) {
  const int64_t width = panel_columns(), count = (n + width - 1) / width;
  TROUPE_ASSIGN(Tensor panels, context.allocate(DType::kFloat32, {count, k, width}));
  float* const to = panels.mutable_data<float>();
  const int64_t grain = kCheapGrain / std::max<int64_t>(k * width, 1) + 1;
  parallel_for(context.threads(), count, grain, [&](int64_t panel, int64_t end) {
    for (; panel < end; ++panel) {
      const int64_t first = panel * width, columns = std::min(width, n - first);
      // A line of each of b's rows at a time, where its rows become columns.
      for (int64_t row = 0; row < k; row += kLine)
        copy_rows(tb ? b + first * k : b + first, tb, tb ? k : n, row, std::min(row + kLine, k), columns, width,
                  to + panel * k * width);
    }
  });
  return panels;
}

void multiply_panel(const float* a, int64_t rows, int64_t k, const float* b, int64_t columns, bool add, float* sums) {
  chosen().multiply(a, rows, k, b, columns, add, sums);
}

}  // namespace troupe
