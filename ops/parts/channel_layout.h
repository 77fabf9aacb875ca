// SPDX-License-Identifier: Apache-2.0
// Where the channels of an image tensor are: the data_format attributes NHWC and NCHW.
#pragma once
#include <string>

#include "troupe/kernel.h"

namespace troupe {

/// Indices of a tensor [batch, height, width, channels] or [batch, channels, height, width].
struct ChannelLayout {
  bool channels_first = false;
  explicit ChannelLayout(const Attrs& attrs) {
    const auto* format = attrs.get<std::string>("data_format");
    channels_first = format && *format == "NCHW";
  }
  int channel() const { return channels_first ? 1 : 3; }
  int height() const { return channels_first ? 2 : 1; }
  int width() const { return channels_first ? 3 : 2; }
  template <class S> S shape(int64_t n, int64_t h, int64_t w, int64_t c) const {
    return channels_first ? S{n, c, h, w} : S{n, h, w, c};
  }
};

}  // namespace troupe
