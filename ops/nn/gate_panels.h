// SPDX-License-Identifier: Apache-2.0
// The weights of an LSTM's gates in panels (ops/parts/panel_product.h), so that a thread which takes some units has all
// that these need and nothing else: it can make the units' results without waiting for others, and what it reads in one
// step is in its cache in the next. Implemented in ops/nn/gate_panels.cpp.
#pragma once
#include "ops/parts/panel_product.h"
#include "troupe/kernel.h"

namespace troupe {

/// A panel has the columns of four gates for so many units, one gate after the other.
inline int64_t panel_units() { return panel_columns() / 4; }

/// Panels that `units` fill; the last one may be filled in part.
inline int64_t panels_of(int64_t units) { return (units + panel_units() - 1) / panel_units(); }

/// The weights w [depth, 4 * units] as panels [panels_of(units), depth, panel_columns()], with zeros where there are no
/// units. Errors: memory.
Result<Tensor> gate_panels(const KernelContext& c, const float* w, int64_t depth, int64_t units);

}  // namespace troupe
