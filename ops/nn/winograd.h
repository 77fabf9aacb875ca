// SPDX-License-Identifier: Apache-2.0
// Convolutions by constant filters of 3x3 places after Winograd: S. Winograd, Arithmetic Complexity of Computations
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

/// What is kept of one filter, and its convolutions over images [batch, height, width, channels] of float32. Any
/// thread.
class Winograd {
 public:
  /// Nothing where it is no gain: for processors without AVX2 and FMA, filters other than [3, 3, in, out] of multiples
  /// of 8 channels, 32 at least, strides and dilations.
  static std::unique_ptr<Winograd> make(const Tensor& filter, const WindowAttrs& attrs);

  /// Whether it is faster than a direct convolution of `s`: with one image of few places the transformed filter, which
  /// is 2 to 4 times as large, takes longer to read than it saves. By the shape alone.
  bool pays(const ConvShape& s) const;
  /// Whether `filter` is the one that this was made for; a step may feed another.
  bool is_of(const Tensor& filter) const { return filter.raw() == filter_.raw() && filter.shape() == filter_.shape(); }
  /// The convolution of input 0 of `c` and what `epilogue` does to it. The result has the same bits whatever the number
  /// of threads, and is within 5e-6 of its largest value of what a direct convolution gives. Error: no memory.
  Result<Tensor> compute(KernelContext& c, const ConvShape& s, const Epilogue& epilogue);

 private:
  explicit Winograd(const Tensor& filter) : filter_(filter) {}
  template <int kTile> Result<Tensor> compute_in_tiles(KernelContext& c, const ConvShape& s, const Epilogue& epilogue);
  template <int kTile> Result<Tensor> transformed(const KernelContext& c);

  const Tensor filter_;
  std::mutex mutex_;
  Tensor transformed_[2];  // guarded by mutex_: of tiles of 2x2, of 4x4
};

}  // namespace troupe
