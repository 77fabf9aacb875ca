// SPDX-License-Identifier: Apache-2.0
// What the kernels of CPUs and GPUs for batch normalisation check, and how they look at images. Implemented in
// ops/nn/batch_norm.cpp.
#pragma once
#include "ops/parts/channel_layout.h"
#include "troupe/kernel.h"

namespace troupe {

/// Images as [outer, channels, inner]; inner is 1 with channels last.
struct ImagesView {
  int64_t outer, channels, inner;
  ImagesView(const Shape& s, const ChannelLayout& l)
      : outer(l.channels_first ? s[0] : s[0] * s[1] * s[2]), channels(s[l.channel()]),
        inner(l.channels_first ? s[2] * s[3] : 1) {}
  int64_t count() const { return outer * inner; }
  bool empty() const { return outer * channels * inner == 0; }
};

/// The attributes of FusedBatchNormV3 and of FusedBatchNormGradV3.
struct BatchNormAttrs {
  ChannelLayout layout;
  bool training;
  float epsilon;
  float factor;  // exponential_avg_factor; 1 of the gradient
  explicit BatchNormAttrs(const KernelInit& init);
  /// Whether training blends the statistics of the batch with those that are given.
  bool blends() const { return training && factor != 1.0f; }
};

/// Input 0 of FusedBatchNormV3. Errors: it is not images; a vector that is read is not one number for each channel.
Result<ImagesView> batch_norm_view(const KernelContext& c, const BatchNormAttrs& attrs);
/// Input 1 of FusedBatchNormGradV3. Errors: the same; y_backprop is not of its shape.
Result<ImagesView> batch_norm_grad_view(const KernelContext& c, const BatchNormAttrs& attrs);

}  // namespace troupe
