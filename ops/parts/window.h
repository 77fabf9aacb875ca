// SPDX-License-Identifier: Apache-2.0
// The geometry of windows that slide over images, for convolutions and pools: attributes strides, dilations, padding,
// explicit_paddings and data_format. Implemented in ops/parts/window.cpp.
#pragma once
#include <algorithm>

#include "base/host_device.h"
#include "ops/parts/channel_layout.h"
#include "troupe/shape.h"

namespace troupe {

/// One spatial dimension: a window of `size` places, `dilation` apart, moving by `stride` over `in` places with `lo`
/// and `hi` of padding before and after, stands `out` times. -1: not known.
struct WindowAxis {
  int64_t in = -1, size = -1, stride = 1, dilation = 1, lo = 0, hi = 0, out = -1;

  /// Sets what follows from the rest: `out`, and with `same` (padding SAME) lo and hi. A window that is larger than the
  /// padded input stands nowhere; one that is larger by 2 * stride or more is an error, which names `what`.
  Status place(bool same, const char* what);
};

/// Places of the input that window `at` covers; its places are next to one another.
struct Covered {
  int64_t begin, end;
  TROUPE_HOST_DEVICE Covered(const WindowAxis& a, int64_t at)
      : begin(std::max<int64_t>(at * a.stride - a.lo, 0)), end(std::min(at * a.stride - a.lo + a.size, a.in)) {}
};

/// The attributes of a windowed op, checked.
struct WindowAttrs {
  ChannelLayout layout;
  std::string padding = {};     // SAME, VALID or EXPLICIT
  int64_t strides[2] = {1, 1};  // by height, width
  int64_t dilations[2] = {1, 1};
  int64_t sizes[2] = {-1, -1};  // of pools: attribute ksize
  int64_t explicit_lo[2] = {0, 0}, explicit_hi[2] = {0, 0};

  /// Errors: lists of other than 4 (8 for explicit_paddings) values, values below 1 (0 for paddings), windows along
  /// batch or channels.
  static Result<WindowAttrs> parse(const Attrs& attrs);
  /// Places the window; `in` and `size` may be -1. Error: that of WindowAxis::place().
  Result<WindowAxis> axis(int dimension, int64_t in, int64_t size) const;
};

/// A two-dimensional convolution; -1: not known. A depthwise one is grouped: as many groups as input channels.
struct ConvShape {
  int64_t batch = -1, in_channels = -1, out_channels = -1, group_in = -1, groups = -1;
  WindowAxis y, x;
  /// `filter` is [height, width, in/groups, out], or [height, width, in, multiplier] of a depthwise convolution.
  /// Errors name both shapes.
  static Result<ConvShape> resolve(const WindowAttrs& attrs, const PartialShape& input, const PartialShape& filter,
                                   bool depthwise);
};

}  // namespace troupe
