// SPDX-License-Identifier: Apache-2.0
// Convolutions by filters of 3x3 places after Winograd: S. Winograd, Arithmetic Complexity of Computations
// (1980); A. Lavin, S. Gray, Fast Algorithms for Convolutional Neural Networks (2016). Tiles of 2x2 results take 16
// products for each pair of channels rather than 36, tiles of 4x4 take 36 rather than 144. Implemented in
// ops/nn/winograd.cpp.
#pragma once
#include <memory>
#include <mutex>

#include "ops/nn/epilogue.h"
#include "ops/parts/window.h"
#include "troupe/kernel.h"

namespace troupe {

/// The convolutions of a kernel over images [batch, height, width, channels] of float32, and what is kept of its
/// filter. Any thread.
class Winograd {
 public:
  /// The direction that a filter [3, 3, in, out] is for: from images of `in` channels, or back from those of `out` to
  /// the gradient by the others.
  enum class Filter { kForward, kBack };

  /// Nothing for processors without AVX2 and FMA, for strides and dilations other than 1, and for other layouts.
  /// `constant`: the filter of all calls but those that are fed another, which is transformed once; or undefined.
  static std::unique_ptr<Winograd> make(const WindowAttrs& attrs, Filter direction, Tensor constant = {});

  /// Whether it is faster by `filter` than a direct convolution of `s`: of 3x3 places, of multiples of 8 channels, 32
  /// at least, and of so many places that the transformed filter, which is 2 to 4 times as large, is worth making and
  /// reading. By shapes and whether the filter is the constant alone.
  bool pays(const ConvShape& s, const Tensor& filter) const;
  /// The convolution of `images` and what `epilogue` does to it. The result has the same bits whatever the number of
  /// threads, and is within 5e-6 of its largest value of what a direct convolution gives; a place that is not finite
  /// makes all results of its tiles NaN. Error: no memory.
  Result<Tensor> compute(KernelContext& c, const Tensor& images, const Tensor& filter, const ConvShape& s,
                         const Epilogue& epilogue);

 private:
  Winograd(Filter direction, Tensor constant) : direction_(direction), constant_(std::move(constant)) {}
  bool is_constant(const Tensor& filter) const {
    return constant_.defined() && filter.raw() == constant_.raw() && filter.shape() == constant_.shape();
  }
  /// What the products of tiles of this size take, and making and reading the filter for them.
  int64_t cost(const ConvShape& s, int64_t tile, bool constant) const;
  template <int kTile>
  Result<Tensor> compute_in_tiles(KernelContext& c, const Tensor& images, const Tensor& filter, const ConvShape& s,
                                  const Epilogue& epilogue);
  /// `filter`, transformed, or what is kept of it.
  template <int kTile> Result<Tensor> transformed(const KernelContext& c, const Tensor& filter);
  template <int kTile> Result<Tensor> transform(const KernelContext& c, const Tensor& filter) const;

  const Filter direction_;
  const Tensor constant_;
  std::mutex mutex_;
  Tensor kept_[2];  // guarded by mutex_: of tiles of 2x2, of 4x4
};

/// The convolution that gives the gradient by the input of one of stride 1: over the gradient by its result, by its
/// filter of 3x3 places turned round.
ConvShape back_of(const ConvShape& s);

}  // namespace troupe
