// SPDX-License-Identifier: Apache-2.0
// Fusing of the gradients of biases, of Relu and of GELU with the matrix products next to them, on GPUs.
#pragma once
#include <unordered_map>
#include <vector>

#include "graph/passes/pass_devices.h"
#include "graph/passes/readers.h"

namespace troupe {

/// What the matrix library of a GPU does at the end of a product of a backward pass. To run after EpilogueFusion.
///   1. ReluGrad(MatMul(dz, w), y) with its BiasAddGrad, if any, becomes _FusedMatMulReluGrad, and
///      _GeluApproximateGrad(MatMul(dz, w), x) _FusedMatMulGeluGrad. The product may be reshaped in between, in steps
///      with control flow by a constant alone, for another shape may be dead: then the sums go along where it is known
///      that they are those of its columns.
///   2. BiasAddGrad(d) and MatMul(x, d) or MatMul(d, y), with d as it was transposed for a weight's gradient, become
///      _FusedMatMulBiasAddGrad. Not in steps with control flow, where x may be dead and d not.
/// Left alone: a product under such a gradient that has another reader, is fetched or fed, and nodes with control
/// inputs.
class ProductGradientFusion {
 public:
  /// Finds what is to be fused in `step`, which must outlive it and change by visit() alone from now on.
  ProductGradientFusion(StepGraph& step, const PassDevices& devices);
  /// True if a fused node's output now stands for `node`. To be called for each node, inputs first.
  bool visit(const Node& node);

 private:
  /// What ReluGrad or _GeluApproximateGrad becomes.
  struct ActivationGradient {
    const char* fused;
    const Node* product;
    const Node* sums;  // its BiasAddGrad, or nullptr
  };
  /// A product and the BiasAddGrad of one of its operands.
  struct Pair {
    const Node *product, *sums;
    const char* of;  // that operand
  };

  bool is_free(const Node& node, const Node& beside) const;
  /// `all_live`: no node can be dead.
  void find_activation_gradients(const PassDevices& devices, bool all_live);
  void find_pairs(const PassDevices& devices);
  bool fuse_activation(const Node& gradient, const ActivationGradient& parts);
  bool fuse_pair(const Node& first, const Pair& pair);

  StepGraph& step_;
  const Readers readers_;
  std::vector<size_t> places_;                             // by id: where in the order
  std::unordered_multimap<int, const Node*> sums_;         // BiasAddGrads, by id of what they sum
  std::unordered_map<int, ActivationGradient> gradients_;  // by id
  std::unordered_map<int, Pair> pairs_;                    // by id of the first part
  std::unordered_map<int, Output> second_;                 // what is to stand for parts that come later, by id
  std::vector<bool> taken_;                                // by id: a part of something
};

}  // namespace troupe
