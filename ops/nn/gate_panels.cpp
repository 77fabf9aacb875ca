// SPDX-License-Identifier: Apache-2.0
// Where each weight of a gate lies.
#include "ops/nn/gate_panels.h"

#include <algorithm>

#include "devices/parallel.h"
#include "ops/parts/type_dispatch.h"

namespace troupe {
namespace {

/// One panel of gate_panels(), of units from `first` on.
void copy_panel(const float* w, int64_t depth, int64_t units, int64_t first, float* to) {
  const int64_t width = panel_units(), n = std::min(width, units - first);
  for (int64_t row = 0; row < depth; ++row)
    for (int64_t gate = 0; gate < 4; ++gate, to += width) {
      const float* from = w + (4 * row + gate) * units + first;
      std::copy_n(from, n, to);
      std::fill(to + n, to + width, 0.0f);
    }
}

}  // namespace

Result<Tensor> gate_panels(const KernelContext& c, const float* w, int64_t depth, int64_t units) {
  const int64_t panels = panels_of(units), size = depth * panel_columns();
  TROUPE_ASSIGN(Tensor packed, c.allocate(DType::kFloat32, {panels, depth, panel_columns()}));
  float* to = packed.mutable_data<float>();
  parallel_for(c.threads(), panels, kCheapGrain / std::max<int64_t>(size, 1) + 1, [&](int64_t panel, int64_t end) {
    for (; panel < end; ++panel) copy_panel(w, depth, units, panel * panel_units(), to + panel * size);
  });
  return packed;
}

}  // namespace troupe
