// SPDX-License-Identifier: Apache-2.0
// Products of rows with the weights of an LSTM's gates, laid out so that a thread which takes some units has all that
// these need and nothing else: it can make the units' results without waiting for others, and what it reads in one step
// is in its cache in the next. Implemented in ops/nn/gate_panels.cpp.
#pragma once
#include "troupe/kernel.h"

namespace troupe {

/// A panel has the columns of four gates for so many units, one gate after the other.
constexpr int64_t kPanelUnits = 16, kPanelColumns = 4 * kPanelUnits;

/// Panels that `units` fill; the last one may be filled in part.
inline int64_t panels_of(int64_t units) { return (units + kPanelUnits - 1) / kPanelUnits; }

/// The weights w [depth, 4 * units] as panels [panels_of(units), depth, kPanelColumns], with zeros where there are no
/// units. Errors: memory.
Result<Tensor> gate_panels(const KernelContext& c, const float* w, int64_t depth, int64_t units);

/// sums[rows, kPanelColumns] = a[rows, k] b[k, kPanelColumns], or with `add` sums += a b, all dense. A sum has the same
/// bits whatever the number of rows. Any thread.
void multiply_panel(const float* a, int64_t rows, int64_t k, const float* b, bool add, float* sums);
/// Whether multiply_panel() is about as fast as the processor can multiply, for 32 rows and more: with AVX-512.
bool panels_are_fast();

}  // namespace troupe
