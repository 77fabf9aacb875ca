// SPDX-License-Identifier: Apache-2.0
// The inputs of GRUBlockCell and its gradient, as kernels of CPUs and GPUs check them. Implemented in
// ops/nn/recurrent_cells.cpp.
#pragma once
#include "troupe/kernel.h"

namespace troupe {

struct GruShape {
  int64_t batch = 0, inputs = 0, units = 0;
  /// From x, h_prev, w_ru, w_c, b_ru, b_c, the first inputs. Errors: shapes that do not fit.
  static Result<GruShape> of(const KernelContext& c);
  Shape state() const { return {batch, units}; }
};

}  // namespace troupe
