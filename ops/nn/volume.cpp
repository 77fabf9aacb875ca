// SPDX-License-Identifier: Apache-2.0
// The geometry of windows over volumes, and the elements under them.
#include "ops/nn/volume.h"

#include "ops/parts/index_tensors.h"

namespace troupe {
namespace {

constexpr const char* kAxisNames[] = {"depth", "height", "width"};

/// The values of a list attribute along depth, height and width, where there is one.
Status spatial(const Attrs& attrs, const char* name, const VolumeAttrs& v, std::array<int64_t, 3>& out) {
  const auto* list = attrs.get<std::vector<int64_t>>(name);
  if (!list) return {};
  if (list->size() != 5) return invalid_argument("{} must have 5 values, not {}", name, list->size());
  if ((*list)[0] != 1 || (*list)[v.channel()] != 1)
    return invalid_argument("{} along batch and channels must be 1: {}", name, to_string(AttrValue(*list)));
  constexpr int64_t kMost = int64_t{1} << 30;
  for (int i = 0; i < 3; ++i) {
    out[i] = (*list)[v.space(i)];
    if (out[i] < 1 || out[i] > kMost)
      return invalid_argument("{} must be 1 or more: {}", name, to_string(AttrValue(*list)));
  }
  return {};
}

/// Calls f(element of the columns, element of the volume) with the first channel of each place under the windows, and
/// outside(element of the columns) beyond the edges.
template <class F, class G>
void each_place(const std::array<WindowAxis, 3>& a, int64_t c, int64_t begin, int64_t count, F&& f, G&& outside) {
  int64_t column = 0;
  for (int64_t at = begin; at < begin + count; ++at) {
    const int64_t o[3] = {at / a[2].out / a[1].out, at / a[2].out % a[1].out, at % a[2].out};
    for (int64_t d = 0; d < a[0].size; ++d)
      for (int64_t h = 0; h < a[1].size; ++h)
        for (int64_t w = 0; w < a[2].size; ++w, column += c) {
          const int64_t k[3] = {d, h, w};
          int64_t place = 0;
          bool inside = true;
          for (int i = 0; i < 3; ++i) {
            const int64_t in = o[i] * a[i].stride - a[i].lo + k[i] * a[i].dilation;
            inside &= in >= 0 && in < a[i].in;
            place = place * a[i].in + in;
          }
          if (inside) f(column, place * c);
          else outside(column);
        }
  }
}

}  // namespace

Result<VolumeAttrs> VolumeAttrs::parse(const Attrs& attrs) {
  VolumeAttrs v;
  v.channels_first = attrs.get_or<std::string>("data_format", "") == "NCDHW";
  v.same = attrs.get_or<std::string>("padding", "") == "SAME";
  TROUPE_RETURN_IF_ERROR(spatial(attrs, "strides", v, v.strides));
  TROUPE_RETURN_IF_ERROR(spatial(attrs, "dilations", v, v.dilations));
  TROUPE_RETURN_IF_ERROR(spatial(attrs, "ksize", v, v.sizes));
  return v;
}

Result<std::array<WindowAxis, 3>> VolumeAttrs::axes(const PartialShape& input,
                                                    const std::array<int64_t, 3>& window) const {
  std::array<WindowAxis, 3> out;
  for (int i = 0; i < 3; ++i) {
    out[i] = {input[space(i)], window[i], strides[i], dilations[i]};
    TROUPE_RETURN_IF_ERROR(out[i].place(same, kAxisNames[i]));
  }
  return out;
}

Status VolumeAttrs::check_layout() const {
  if (channels_first) return make_error(Code::kUnimplemented, "there is no CPU kernel for NCDHW, only for NDHWC");
  return {};
}

PartialShape placed(const VolumeAttrs& attrs, int64_t batch, const std::array<WindowAxis, 3>& axes, int64_t channels) {
  const int64_t d = axes[0].out, h = axes[1].out, w = axes[2].out;
  return attrs.channels_first ? PartialShape{batch, channels, d, h, w} : PartialShape{batch, d, h, w, channels};
}

Result<PartialShape> volume_of(const PartialShape& shape, const char* what) {
  if (!shape.has_rank()) return PartialShape::of_rank(5);
  if (shape.rank() != 5) return invalid_argument("{} must have rank 5, but its shape is {}", what, shape.str());
  return shape;
}

Result<Shape> volume_from(const Tensor& sizes, const char* what) {
  TROUPE_ASSIGN(const Shape shape, shape_from(sizes, what));
  if (shape.rank() != 5) return invalid_argument("{} must be 5 numbers, not {}", what, shape.rank());
  return shape;
}

template <class T>
void gather_columns(const std::array<WindowAxis, 3>& a, int64_t c, const T* volume, int64_t begin, int64_t count,
                    T* columns) {
  each_place(
      a, c, begin, count, [&](int64_t to, int64_t from) { std::copy_n(volume + from, c, columns + to); },
      [&](int64_t to) { std::fill_n(columns + to, c, T(0)); });
}

template <class T>
void add_columns(const std::array<WindowAxis, 3>& a, int64_t c, const T* columns, int64_t begin, int64_t count,
                 T* volume) {
  each_place(
      a, c, begin, count,
      [&](int64_t from, int64_t to) {
        for (int64_t k = 0; k < c; ++k) volume[to + k] += columns[from + k];
      },
      [](int64_t) {});
}

template void gather_columns(const std::array<WindowAxis, 3>&, int64_t, const float*, int64_t, int64_t, float*);
template void gather_columns(const std::array<WindowAxis, 3>&, int64_t, const double*, int64_t, int64_t, double*);
template void gather_columns(const std::array<WindowAxis, 3>&, int64_t, const uint8_t*, int64_t, int64_t, uint8_t*);
template void add_columns(const std::array<WindowAxis, 3>&, int64_t, const float*, int64_t, int64_t, float*);
template void add_columns(const std::array<WindowAxis, 3>&, int64_t, const double*, int64_t, int64_t, double*);

}  // namespace troupe
