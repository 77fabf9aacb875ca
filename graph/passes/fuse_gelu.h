// SPDX-License-Identifier: Apache-2.0
// On GPUs, GELU and its gradient become one node each.
#pragma once
#include <string>
#include <unordered_map>

#include "graph/passes/gelu.h"
#include "graph/passes/pass_devices.h"

namespace troupe {

/// Puts _GeluApproximateGrad(dy, x) or _GeluExactGrad(dy, x) in place of the nodes of a gradient: so nothing but x is
/// kept of the forward pass. To run before EpilogueFusion. Left alone: where somebody else reads or waits for what is
/// between dy and the result, what is fed, and nodes with control inputs.
class GeluGradientFusion {
 public:
  /// Finds what is to be fused in `step`, which must outlive it and change by visit() alone from now on.
  GeluGradientFusion(StepGraph& step, const PassDevices& devices);
  /// True if a fused node now stands for `node`. To be called for each node, inputs first.
  bool visit(const Node& node);

 private:
  StepGraph& step_;
  std::unordered_map<int, GeluGradient> found_;  // by id of the last node
};

/// Puts _GeluApproximate(x) or _GeluExact(x) in place of the nodes of a GELU. To run after EpilogueFusion, which makes
/// one node of it and the product before where nobody else reads x. Left alone as above.
class GeluFusion {
 public:
  GeluFusion(StepGraph& step, const PassDevices& devices);
  bool visit(const Node& node);

 private:
  StepGraph& step_;
  std::unordered_map<int, Gelu> found_;  // by id of the last node
};

}  // namespace troupe
