// SPDX-License-Identifier: Apache-2.0
// Rows of convolutions for 16 channels at a time, with bias and activation: for processors with AVX-512 on images in
// blocks of channels (ops/parts/image_blocks.h), for those with AVX2 and FMA on [height, width, channels] too.
// Implemented in ops/nn/block_rows.cpp.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace troupe {

/// Places that a call of BlockRows::pointwise() takes at most, on any processor.
inline constexpr int64_t kMostPlaces = 28;

/// What comes after the sums and the bias.
struct BlockActivation {
  bool swish = false;  // x * sigmoid(x), within 1e-6 of the larger of 1 and |x|; else:
  float least = -std::numeric_limits<float>::infinity(), most = std::numeric_limits<float>::infinity();
  /// Of Relu, Relu6, Swish and "", which is none; empty for others.
  static std::optional<BlockActivation> of(std::string_view name);
};

/// Loops over one block of 16 channels. A NaN stays one.
class BlockRows {
 public:
  /// For images in blocks, or not; available().
  BlockRows(const BlockActivation& activation, bool blocked);
  /// Whether this processor has loops for such images.
  static bool available(bool blocked);

  /// Places whose sums pointwise() keeps in registers: so many are taken at once at most.
  int64_t most_places() const { return most_places_; }
  /// A 1x1 convolution of `n` places, `place` floats apart (of images in blocks 16) from `x` on. Of each, 16 channels
  /// are next to one another, and `block` floats on the next 16. `weights` are [channels, 16], `bias` [16]; to[i] takes
  /// the 16 results of place i.
  void pointwise(int64_t n, const float* x, int64_t place, int64_t block, int64_t channels, const float* weights,
                 const float* bias, float* const* to) const {
    pointwise_(activation_, n, x, place, block, channels, weights, bias, to);
  }
  /// A row of a depthwise convolution: `n` places, which `stride` (1 or 2) is between. Row i of the filter begins at
  /// rows[i], and is `width` places of 16 channels; `weights` are [height, width, 16], `bias` [16]. The 16 results of
  /// each place are `place` floats apart from `y` on.
  void depthwise(int64_t n, int64_t stride, const float* const* rows, int64_t height, int64_t width,
                 const float* weights, const float* bias, float* y, int64_t place) const {
    (stride == 1 ? depthwise_ : depthwise_by_2_)(activation_, n, rows, height, width, weights, bias, y, place);
  }

 private:
  using Pointwise = void (*)(const BlockActivation&, int64_t n, const float* x, int64_t place, int64_t block,
                             int64_t channels, const float* weights, const float* bias, float* const* to);
  using Depthwise = void (*)(const BlockActivation&, int64_t n, const float* const* rows, int64_t height, int64_t width,
                             const float* weights, const float* bias, float* y, int64_t place);
  template <class Loops> void take();
  const BlockActivation activation_;
  int64_t most_places_ = 1;
  Pointwise pointwise_ = nullptr;
  Depthwise depthwise_ = nullptr, depthwise_by_2_ = nullptr;
};

}  // namespace troupe
