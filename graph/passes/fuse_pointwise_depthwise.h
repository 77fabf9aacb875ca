// SPDX-License-Identifier: Apache-2.0
// Fusing of a 1x1 convolution with the depthwise one behind it.
#pragma once
#include "graph/passes/pass_devices.h"
#include "graph/passes/readers.h"

namespace troupe {

/// Puts _PointwiseDepthwise in place of a depthwise convolution that alone reads one of 1x1 places and stride 1, so
/// that the images between them, the largest of MobileNets and EfficientNets, are never in memory. Each may have a bias
/// and Relu, Relu6 or Swish.
/// Left alone: what is added to the result, other activations, strides of more than 2 along the width, dilations, what
/// is fed, nodes with control inputs; of images that are not in blocks also NCHW, other types than float32, filters
/// that are not constants, what is between in other than multiples of 16 channels or, without a Swish, not known to be
/// large, and what runs on GPUs.
class PointwiseDepthwiseFusion {
 public:
  /// Of which images: of each _BlockedConv2D, behind ImageBlocks, or of plain and fused convolutions.
  enum class Images : uint8_t { kBlocked, kPlain };
  /// `step` must outlive it and change by visit() alone from now on.
  PointwiseDepthwiseFusion(StepGraph& step, Images images, const PassDevices& devices = {})
      : step_(step), images_(images), devices_(devices), readers_(step) {}
  /// True if a fused node now stands for `node`. To be called for each node, inputs first.
  bool visit(const Node& node);

 private:
  /// Whether it may be one of the two.
  bool is_half(const Node& node, bool depthwise) const;
  /// Whether the sizes do, with that filter of the first.
  bool fits(const Node& pointwise, const Node& depthwise, const PartialShape& filter) const;

  StepGraph& step_;
  const Images images_;
  const PassDevices devices_;
  const Readers readers_;
};

}  // namespace troupe
