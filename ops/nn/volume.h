// SPDX-License-Identifier: Apache-2.0
// Windows that slide over volumes [batch, depth, height, width, channels] (or [batch, channels, ...]), for convolutions
// and pools of three dimensions: attributes ksize, strides, dilations, padding and data_format. Implemented in
// ops/nn/volume.cpp.
#pragma once
#include <array>

#include "ops/parts/window.h"

namespace troupe {

/// The attributes of such an op, checked.
struct VolumeAttrs {
  bool channels_first = false, same = false;
  std::array<int64_t, 3> strides = {1, 1, 1}, dilations = {1, 1, 1}, sizes = {-1, -1, -1};

  /// Errors: lists of other than 5 values, values below 1, windows along batch or channels.
  static Result<VolumeAttrs> parse(const Attrs& attrs);
  int channel() const { return channels_first ? 1 : 4; }
  /// Which dimension depth, height or width is.
  int space(int i) const { return (channels_first ? 2 : 1) + i; }
  /// Places the window over an input of rank 5, of which sizes may be unknown. Errors: as WindowAxis::place.
  Result<std::array<WindowAxis, 3>> axes(const PartialShape& input, const std::array<int64_t, 3>& window) const;
  /// Kernels have only one layout. Error: channels first.
  Status check_layout() const;
};

/// A volume with the places of windows as its sizes.
PartialShape placed(const VolumeAttrs& attrs, int64_t batch, const std::array<WindowAxis, 3>& axes, int64_t channels);
/// `shape`, or five unknown sizes. Error, which names `what`: another rank.
Result<PartialShape> volume_of(const PartialShape& shape, const char* what);
/// The sizes of a volume that a vector spells. Errors, which name `what`: other than five, negative ones.
Result<Shape> volume_from(const Tensor& sizes, const char* what);

/// The columns of places [begin, begin + count) of one volume of axes `a` and c channels: the c numbers of each of the
/// window's elements, zeros for what lies beyond the edges. `columns` is [count, window, c].
template <class T>
void gather_columns(const std::array<WindowAxis, 3>& a, int64_t c, const T* volume, int64_t begin, int64_t count,
                    T* columns);
/// Adds columns to the places of the volume that they came from.
template <class T>
void add_columns(const std::array<WindowAxis, 3>& a, int64_t c, const T* columns, int64_t begin, int64_t count,
                 T* volume);

}  // namespace troupe
