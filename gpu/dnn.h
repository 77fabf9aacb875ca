// SPDX-License-Identifier: Apache-2.0
// Dnn: convolutions over images on GPUs. There are two: cuDNN (gpu/cudnn.h), and a fake on the host
// (gpu/fake/fake_dnn.h). Implemented in gpu/dnn.cpp.
#pragma once
#include "gpu/blas.h"
#include "troupe/dtype.h"

namespace troupe::gpu {

/// A convolution, one of whose three tensors is made from the other two. All are dense and in the card's memory. Images
/// are [batch, height, width, channels], or with channels_first [batch, channels, height, width]; input and output both
/// are. Filters are [out_channels, height, width, in_channels / groups], or with channels_first [out_channels,
/// in_channels / groups, height, width]. Group g makes the g-th part of the output's channels from that of the input's.
struct Convolution {
  enum class Makes { kOutput, kInput, kFilter };  // the latter two: the gradients by these
  struct Axis {
    int64_t in = 1, size = 1, stride = 1, dilation = 1;
    int64_t padding = 0;  // zeros before the input, and as many after it
    int64_t out = 1;      // see places()
    /// How often the filter stands: what `out` must be. Below 1: it does not fit.
    int64_t places() const;
  };

  Makes makes = Makes::kOutput;
  DType dtype = DType::kFloat32;  // of all: float32, float64, float16 or bfloat16; 16-bit floats add up as float32
  bool channels_first = false;
  int64_t batch = 1, in_channels = 1, out_channels = 1, groups = 1;
  Axis y = {}, x = {};
  const void *input = nullptr, *filter = nullptr, *output = nullptr;  // the two that are read
  void* made = nullptr;
  // What follows at once, with kOutput only.
  const void* bias = nullptr;  // out_channels elements, one for each channel; or null
  Activation activation = Activation::kNone;
};

/// Errors, kInvalidArgument: sizes below 1, groups that do not divide the channels, an `out` that is not places(), a
/// bias or an activation of a gradient.
Status check_convolution(const Convolution& c);

/// Thread-safe.
class Dnn {
 public:
  virtual ~Dnn() = default;
  /// Puts the convolution into the device's stream. Errors: kUnimplemented for types or sizes that it has none of, or
  /// none with that bias or activation; those of check_convolution(), of the library and of memory for it to work in.
  virtual Status convolve(const Compute& gpu, const Convolution& c) = 0;
};

}  // namespace troupe::gpu
