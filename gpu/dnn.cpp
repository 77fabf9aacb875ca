// SPDX-License-Identifier: Apache-2.0
#include "gpu/dnn.h"

#include <algorithm>

namespace troupe::gpu {

int64_t Convolution::Axis::places() const {
  const int64_t room = in + 2 * padding - ((size - 1) * dilation + 1);
  return room < 0 ? 0 : room / stride + 1;
}

Status check_convolution(const Convolution& c) {
  if (std::min({c.batch, c.in_channels, c.out_channels, c.groups}) < 1 || c.in_channels % c.groups != 0 ||
      c.out_channels % c.groups != 0)
    return invalid_argument("{} images cannot be convolved from {} to {} channels in {} groups", c.batch, c.in_channels,
                            c.out_channels, c.groups);
  if (c.makes != Convolution::Makes::kOutput && (c.bias || c.activation != Activation::kNone))
    return invalid_argument("a gradient of a convolution takes neither bias nor activation");
  for (const Convolution::Axis& a : {c.y, c.x})
    if (std::min({a.in, a.size, a.stride, a.dilation, a.out}) < 1 || a.padding < 0 || a.places() != a.out)
      return invalid_argument(
          "a filter of {} places, {} apart, does not stand {} times, {} apart, over {} places with {} of padding",
          a.size, a.dilation, a.out, a.stride, a.in, a.padding);
  return {};
}

}  // namespace troupe::gpu
