// SPDX-License-Identifier: Apache-2.0
// Rows of convolutions on images in blocks of channels (ops/parts/image_blocks.h), with bias and activation, for
// processors with AVX-512. Implemented in ops/nn/block_rows.cpp.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace troupe {

/// Places whose sums a call of pointwise() keeps in registers at once.
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
  explicit BlockRows(const BlockActivation& activation);
  /// Whether this processor can run them.
  static bool available();

  /// A 1x1 convolution of `n` places, at most kMostPlaces, that are next to one another from `x` on, in blocks that are
  /// `block` floats apart. `weights` are [channels, 16], `bias` [16]; to[i] takes the 16 results of place i.
  void pointwise(int64_t n, const float* x, int64_t block, int64_t channels, const float* weights, const float* bias,
                 float* const* to) const {
    pointwise_(activation_, n, x, block, channels, weights, bias, to);
  }
  /// A row of a depthwise convolution: `n` places, which `stride` (1 or 2) is between. Row i of the filter begins at
  /// rows[i], and is `width` places; `weights` are [height, width, 16], `bias` [16], `y` [n, 16].
  void depthwise(int64_t n, int64_t stride, const float* const* rows, int64_t height, int64_t width,
                 const float* weights, const float* bias, float* y) const {
    (stride == 1 ? depthwise_ : depthwise_by_2_)(activation_, n, rows, height, width, weights, bias, y);
  }

 private:
  using Pointwise = void (*)(const BlockActivation&, int64_t n, const float* x, int64_t block, int64_t channels,
                             const float* weights, const float* bias, float* const* to);
  using Depthwise = void (*)(const BlockActivation&, int64_t n, const float* const* rows, int64_t height, int64_t width,
                             const float* weights, const float* bias, float* y);
  const BlockActivation activation_;
  Pointwise pointwise_ = nullptr;
  Depthwise depthwise_ = nullptr, depthwise_by_2_ = nullptr;
};

}  // namespace troupe
