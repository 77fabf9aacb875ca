// SPDX-License-Identifier: Apache-2.0
// Products of rows with a matrix in panels: so many of its columns lie together, row by row. Implemented in
// ops/parts/panel_product.cpp.
#pragma once
#include <cstdint>

namespace troupe {

/// Columns of a panel, by what suits the processor's registers: 48 with AVX2 and FMA, 64 with AVX-512 and else.
int64_t panel_columns();

/// The first `columns` columns of sums[rows, panel_columns()] = a[rows, k] b[k, panel_columns()], or with `add` of
/// sums += a b, all dense; what is in the other columns of sums is left open. A sum has the same bits whatever the
/// number of rows. Any thread.
void multiply_panel(const float* a, int64_t rows, int64_t k, const float* b, int64_t columns, bool add, float* sums);
/// Whether multiply_panel() is about as fast as the processor can multiply, for 32 rows and more: with AVX2 and FMA or
/// AVX-512.
bool panels_are_fast();

}  // namespace troupe
