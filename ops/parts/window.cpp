// SPDX-License-Identifier: Apache-2.0
// The geometry of sliding windows.
#include "ops/parts/window.h"

namespace troupe {
namespace {

/// The values of a list attribute along height and width.
Status spatial(const Attrs& attrs, const char* name, const ChannelLayout& layout, int64_t out[2]) {
  const auto* list = attrs.get<std::vector<int64_t>>(name);
  if (!list) return {};
  if (list->size() != 4) return invalid_argument("{} must have 4 values, not {}", name, list->size());
  if ((*list)[0] != 1 || (*list)[layout.channel()] != 1)
    return invalid_argument("{} along batch and channels must be 1: {}", name, to_string(AttrValue(*list)));
  out[0] = (*list)[layout.height()];
  out[1] = (*list)[layout.width()];
  constexpr int64_t kMost = int64_t{1} << 30;
  if (out[0] < 1 || out[1] < 1 || out[0] > kMost || out[1] > kMost)
    return invalid_argument("{} must be 1 or more: {}", name, to_string(AttrValue(*list)));
  return {};
}

}  // namespace

Result<WindowAttrs> WindowAttrs::parse(const Attrs& attrs) {
  WindowAttrs w{ChannelLayout(attrs), attrs.get_or<std::string>("padding", "VALID")};
  TROUPE_RETURN_IF_ERROR(spatial(attrs, "strides", w.layout, w.strides));
  TROUPE_RETURN_IF_ERROR(spatial(attrs, "dilations", w.layout, w.dilations));
  TROUPE_RETURN_IF_ERROR(spatial(attrs, "ksize", w.layout, w.sizes));
  const auto pads = attrs.get_or<std::vector<int64_t>>("explicit_paddings", {});
  if (w.padding != "EXPLICIT") {
    if (!pads.empty()) return invalid_argument("explicit_paddings given with padding {}", w.padding);
    return w;
  }
  if (pads.size() != 8) return invalid_argument("explicit_paddings must have 8 values, not {}", pads.size());
  const int channel = w.layout.channel();
  for (int64_t p : pads)
    if (p < 0 || p > (int64_t{1} << 30))
      return invalid_argument("explicit_paddings must not be negative: {}", to_string(AttrValue(pads)));
  if (pads[0] || pads[1] || pads[2 * channel] || pads[2 * channel + 1])
    return invalid_argument("explicit_paddings along batch and channels must be 0: {}", to_string(AttrValue(pads)));
  const int at[] = {w.layout.height(), w.layout.width()};
  for (int i = 0; i < 2; ++i) {
    w.explicit_lo[i] = pads[2 * at[i]];
    w.explicit_hi[i] = pads[2 * at[i] + 1];
  }
  return w;
}

Status WindowAxis::place(bool same, const char* what) {
  if (same) {
    if (in < 0) return {};
    out = (in + stride - 1) / stride;
    if (size < 0) return {};
    const int64_t total = std::max<int64_t>((out - 1) * stride + (size - 1) * dilation + 1 - in, 0);
    lo = total / 2;
    hi = total - lo;
    return {};
  }
  if (in < 0 || size < 0) return {};
  const int64_t room = in + lo + hi - ((size - 1) * dilation + 1);
  if (room <= -2 * stride)
    return invalid_argument("a window of {} places, dilation {}, is larger than the {} of {} with {} of padding", size,
                            dilation, what, in, lo + hi);
  out = room < 0 ? 0 : room / stride + 1;  // TensorFlow's rounding makes a little too large a window none
  return {};
}

Result<WindowAxis> WindowAttrs::axis(int dimension, int64_t in, int64_t size) const {
  WindowAxis a{in, size, strides[dimension], dilations[dimension], explicit_lo[dimension], explicit_hi[dimension]};
  TROUPE_RETURN_IF_ERROR(a.place(padding == "SAME", dimension ? "width" : "height"));
  return a;
}

Result<ConvShape> ConvShape::resolve(const WindowAttrs& attrs, const PartialShape& input, const PartialShape& filter,
                                     bool depthwise) {
  if ((input.has_rank() && input.rank() != 4) || (filter.has_rank() && filter.rank() != 4))
    return invalid_argument("input and filter must have rank 4: {}, {}", input.str(), filter.str());
  const PartialShape in = input.has_rank() ? input : PartialShape::of_rank(4);
  const PartialShape f = filter.has_rank() ? filter : PartialShape::of_rank(4);
  ConvShape s;
  s.batch = in[0];
  s.in_channels = in[attrs.layout.channel()];
  if (f[0] == 0 || f[1] == 0 || f[2] == 0) return invalid_argument("filter {} has no weights", filter.str());
  if (depthwise) {
    if (s.in_channels >= 0 && f[2] >= 0 && s.in_channels != f[2])
      return invalid_argument("filter {} is not for the {} channels of input {}", filter.str(), s.in_channels,
                              input.str());
    s.groups = s.in_channels = std::max(s.in_channels, f[2]);
    s.group_in = 1;
    s.out_channels = s.groups < 0 || f[3] < 0 ? -1 : s.groups * f[3];
  } else {
    s.group_in = f[2];
    s.out_channels = f[3];
    if (s.in_channels >= 0 && f[2] > 0) {
      if (s.in_channels % f[2] != 0 || s.in_channels == 0)
        return invalid_argument("filter {} is not for the {} channels of input {}", filter.str(), s.in_channels,
                                input.str());
      s.groups = s.in_channels / f[2];
      if (f[3] >= 0 && f[3] % s.groups != 0)
        return invalid_argument("{} filters do not divide into {} groups: input {}, filter {}", f[3], s.groups,
                                input.str(), filter.str());
    }
  }
  TROUPE_ASSIGN(s.y, attrs.axis(0, in[attrs.layout.height()], f[0]));
  TROUPE_ASSIGN(s.x, attrs.axis(1, in[attrs.layout.width()], f[1]));
  return s;
}

}  // namespace troupe
