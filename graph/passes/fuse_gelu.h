// SPDX-License-Identifier: Apache-2.0
// On GPUs, GELU and its gradient become one node each.
#pragma once
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/passes/gelu.h"
#include "graph/passes/pass_devices.h"

namespace troupe {

/// Puts one node in place of those of a GELU, or of its gradient. Left alone: where somebody else reads or waits for
/// what is between (of a gradient: between dy and the result), what is fed, and nodes with control inputs.
class GeluFusion {
 public:
  enum class Of {
    kGradient,  // _GeluApproximateGrad(dy, x), _GeluExactGrad: nothing but x is kept of the forward pass. To run before
                // EpilogueFusion
    kForward,   // _GeluApproximate(x), _GeluExact. To run after it, which makes one node of GELU and the product before
                // where nobody else reads x
  };
  /// Finds what is to be fused in `step`, which must outlive it and change by visit() alone from now on.
  GeluFusion(StepGraph& step, const PassDevices& devices, Of of);
  /// True if a fused node now stands for `node`. To be called for each node, inputs first.
  bool visit(const Node& node);

 private:
  struct Fused {
    std::string op;
    std::vector<Output> inputs;
  };

  StepGraph& step_;
  std::unordered_map<int, Fused> found_;  // by id of the last node
};

}  // namespace troupe
