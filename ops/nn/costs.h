// SPDX-License-Identifier: Apache-2.0
// How much work convolutions and pools are.
#pragma once
#include "ops/nn/conv_kernel.h"
#include "troupe/op_cost.h"

namespace troupe {

/// A multiplication and an addition for each tap of the filter [places..., in, out] at each element of the
/// convolution's result, in each of its three directions. `places`: 2 for images, 3 for volumes.
CostFn convolution_cost(ConvDirection direction, bool depthwise, int places);

/// An operation for each place of each window of `ksize`. There are as many windows as output 0 has elements, or, of a
/// gradient, as its input `windows` has.
CostFn pool_cost(int windows = -1);

}  // namespace troupe
