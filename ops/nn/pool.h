// SPDX-License-Identifier: Apache-2.0
// Pools over images: their windows and what the kernels of CPUs and GPUs check. Implemented in ops/nn/pool.cpp.
#pragma once
#include "ops/parts/window.h"
#include "troupe/kernel.h"

namespace troupe {

/// The window of a kernel: of its attributes, or of the second version's last two inputs, ksize and strides, which are
/// in the host's memory.
class PoolWindow {
 public:
  static Result<PoolWindow> make(const KernelInit& init);
  Result<WindowAttrs> of(const KernelContext& c) const;
  /// The attributes of the first version. Errors: other than 4 values.
  static Result<Attrs> attrs(const Attrs& node, const Tensor& ksize, const Tensor& strides);

 private:
  bool by_inputs_ = false;
  WindowAttrs window_{ChannelLayout(Attrs())};
  Attrs attrs_;
};

/// Images [height, width, channels] one after the other; those of NCHW are images of one channel.
struct PoolShape {
  int64_t images = 0, channels = 1;
  WindowAxis y, x;
  Shape out;
  int64_t in_image() const { return y.in * x.in * channels; }
  int64_t out_image() const { return y.out * x.out * channels; }
  /// Whether every place of the input lies in exactly one window.
  bool tiles() const;
};

/// Errors: an input that is not images, padding as large as the window, a window larger than the padded input by two
/// strides or more.
Result<PoolShape> pool_of(const PoolWindow& window, const KernelContext& c, const Shape& in);
/// The pool of input 0 of MaxPoolGrad, or with `image` of MaxPoolGradGrad. Errors: as of pool_of(); orig_output and
/// grad, inputs 1 and 2, do not fit it.
Result<PoolShape> max_pool_of_gradient(const PoolWindow& window, const KernelContext& c, bool image);
/// The pool of images of the shape that input 0 of AvgPoolGrad, in the host's memory, spells; sets `in` to that shape.
/// Errors: as of pool_of(); grad, input 1, does not fit it.
Result<PoolShape> average_pool_of_gradient(const PoolWindow& window, const KernelContext& c, Shape& in);

}  // namespace troupe
