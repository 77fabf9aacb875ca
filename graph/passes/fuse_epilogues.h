// SPDX-License-Identifier: Apache-2.0
// Fusing of products with the bias and the activation after them.
#pragma once
#include <unordered_map>

#include "graph/passes/pass_devices.h"
#include "graph/step_graph.h"

namespace troupe {

/// Puts _FusedMatMul, _FusedConv2D and _FusedDepthwiseConv2dNative in place of MatMul, Conv2D and
/// DepthwiseConv2dNative with what follows them: BiasAdd, one of Relu, Relu6, Elu, Tanh and Sigmoid, or both, on the
/// same device, where that has a kernel for it. Left alone: a product or a sum that has another reader, is fetched or
/// fed, and nodes with control inputs.
class EpilogueFusion {
 public:
  /// Finds what is to be fused in `step`, which must outlive it and change by visit() alone from now on.
  explicit EpilogueFusion(StepGraph& step, const PassDevices& devices = {});
  /// True if a fused node now stands for `node`. To be called for each node, inputs first.
  bool visit(const Node& node);

 private:
  /// The parts of a fused node; it comes in place of the last.
  struct Parts {
    const Node *product, *bias, *activation;  // nullptr where there is none
  };

  StepGraph& step_;
  std::unordered_map<int, Parts> found_;  // by id of the last part
};

}  // namespace troupe
