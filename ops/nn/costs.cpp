// SPDX-License-Identifier: Apache-2.0
#include "ops/nn/costs.h"

#include "troupe/attr.h"

namespace troupe {

CostFn convolution_cost(ConvDirection direction, bool depthwise, int places) {
  return [=](const CostContext& c) -> NodeCost {
    const bool to_filter = direction == ConvDirection::kFilter;
    double taps = 1;
    for (int d = 0; d < places + int{!depthwise}; ++d) taps *= to_filter ? c.output_size(0, d) : c.input_size(1, d);
    const double results = direction == ConvDirection::kOutput ? c.output_elements(0) : c.input_elements(2);
    return {2 * results * taps, c.all_bytes()};
  };
}

CostFn pool_cost(int windows) {
  return [windows](const CostContext& c) -> NodeCost {
    double places = 1;
    if (const auto* sizes = c.attrs().get<std::vector<int64_t>>("ksize"))
      for (const int64_t size : *sizes) places *= static_cast<double>(std::max<int64_t>(size, 1));
    return {places * (windows < 0 ? c.output_elements(0) : c.input_elements(windows)), c.all_bytes()};
  };
}

}  // namespace troupe
