// SPDX-License-Identifier: Apache-2.0
// Fusing of a 1x1 convolution with the depthwise one behind it.
#pragma once
#include "graph/passes/readers.h"

namespace troupe {

/// Puts _BlockedPointwiseDepthwise in place of a depthwise _BlockedConv2D that alone reads a _BlockedConv2D of 1x1
/// places and stride 1, so that the images between them, the largest of MobileNets and EfficientNets, are never in
/// memory. Each may have a bias and Relu, Relu6 or Swish. Comes after ImageBlocks.
/// Left alone: what is added to the result, other activations, strides of more than 2 along the width, dilations, what
/// is fed, nodes with control inputs.
class PointwiseDepthwiseFusion {
 public:
  /// `step` must outlive it and change by visit() alone from now on.
  explicit PointwiseDepthwiseFusion(StepGraph& step) : step_(step), readers_(step) {}
  /// True if a fused node now stands for `node`. To be called for each node, inputs first.
  bool visit(const Node& node);

 private:
  StepGraph& step_;
  const Readers readers_;
};

}  // namespace troupe
