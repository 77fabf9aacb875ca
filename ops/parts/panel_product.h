// SPDX-License-Identifier: Apache-2.0
// Products of rows with a matrix in panels: so many of its columns lie together, row by row. Implemented in
// ops/parts/panel_product.cpp.
#pragma once
#include <cstdint>

namespace troupe {

constexpr int64_t kPanelColumns = 64;

/// sums[rows, kPanelColumns] = a[rows, k] b[k, kPanelColumns], or with `add` sums += a b, all dense. A sum has the same
/// bits whatever the number of rows. Any thread.
void multiply_panel(const float* a, int64_t rows, int64_t k, const float* b, bool add, float* sums);
/// Whether multiply_panel() is about as fast as the processor can multiply, for 32 rows and more: with AVX2 and FMA or
/// AVX-512.
bool panels_are_fast();

}  // namespace troupe
