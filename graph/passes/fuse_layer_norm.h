// SPDX-License-Identifier: Apache-2.0
// Fusing of the nodes of a layer norm.
#pragma once
#include <unordered_map>
#include <vector>

#include "graph/passes/pass_devices.h"
#include "graph/passes/readers.h"

namespace troupe {

/// Puts _FusedLayerNorm in place of the nodes that normalise over the last dimension, on CPUs: a Mean of x, a Mean of
/// the squares of what x has beyond it, Rsqrt (or a division by Sqrt) of that and a constant, and sums and products in
/// any order that amounts to (x - mean) / root [gamma] [+ beta], where gamma and beta are vectors along that dimension.
/// Left alone: nodes of which what is in between has another reader, is fetched or fed, and nodes with control inputs.
class LayerNormFusion {
 public:
  /// Finds what is to be fused in `step`, which must outlive it and change by visit() alone from now on.
  LayerNormFusion(StepGraph& step, const PassDevices& devices);
  /// True if a fused node now stands for `node`. To be called for each node, inputs first.
  bool visit(const Node& node);
  /// Whether there may be one.
  static bool may_apply(const StepGraph& step);

 private:
  struct Norm {
    Output x;
    Output gamma, beta;  // none: empty
    float epsilon;
  };
  class Search;

  StepGraph& step_;
  const Readers readers_;
  std::unordered_map<int, Norm> found_;  // by id of the last node
};

}  // namespace troupe
