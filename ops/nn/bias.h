// SPDX-License-Identifier: Apache-2.0
// What the kernels of CPUs and GPUs for BiasAdd and BiasAddGrad check. Implemented in ops/nn/bias.cpp.
#pragma once
#include "troupe/attr.h"
#include "troupe/error.h"
#include "troupe/shape.h"

namespace troupe {

/// A tensor as [outer, channels, inner]; inner is 1 with channels last.
struct BiasView {
  int64_t outer = 1, channels = 1, inner = 1;
};

/// What attribute data_format says.
bool bias_channels_first(const Attrs& attrs);
/// Errors: a rank below 2.
Result<BiasView> bias_view(const Shape& x, bool first);
/// Errors: a bias that is not one number for each channel of x.
Status check_bias(const Shape& bias, const BiasView& view, const Shape& x);

}  // namespace troupe
