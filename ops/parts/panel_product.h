// SPDX-License-Identifier: Apache-2.0
// Products of rows with a matrix in panels: so many of its columns lie together, row by row. Implemented in
// ops/parts/panel_product.cpp.
#pragma once
#include "troupe/kernel.h"

namespace troupe {

/// Columns of a panel, by what suits the processor's registers: 48 with AVX2 and FMA, 64 with AVX-512 and else.
int64_t panel_columns();
constexpr int64_t kMostPanelColumns = 64;

/// op(b) [k,n] in panels, [panels, k, panel_columns()]; the last one ends with columns of zeros. Errors: memory.
Result<Tensor> in_panels(const KernelContext& context, const float* b, bool tb, int64_t k, int64_t n);

/// The first `columns` columns of sums[rows, panel_columns()] = a[rows, k] b[k, panel_columns()], or with `add` of
/// sums += a b, all dense; what is in the other columns of sums is left open. A sum has the same bits whatever the
/// number of rows. Any thread.
void multiply_panel(const float* a, int64_t rows, int64_t k, const float* b, int64_t columns, bool add, float* sums);
/// Whether multiply_panel() is about as fast as the processor can multiply, for 32 rows and more: with AVX2 and FMA or
/// AVX-512.
bool panels_are_fast();
/// Whether they are faster than oneDNN's products, which lay out a matrix once as well, in training too: with AVX2 and
/// FMA. With AVX-512 oneDNN has kernels of its own for that.
bool panels_beat_onednn();

}  // namespace troupe
