// SPDX-License-Identifier: Apache-2.0
// Fusing of batch norms with the Relu behind them, and of their gradients, on GPUs.
#pragma once
#include <unordered_map>
#include <vector>

#include "graph/passes/pass_devices.h"
#include "graph/passes/readers.h"

namespace troupe {

/// Batch norms are bound by memory on a GPU, and so are the additions and Relus behind them.
///   1. Relu(FusedBatchNormV3(x)) becomes _FusedBatchNormRelu, and so does Relu(FusedBatchNormV3(x) + side) where the
///      two are of one shape: a residual block. Not with a side in steps with control flow, where it may be dead.
///   2. ReluGrad(dy, y) and the FusedBatchNormGradV3 of it become _FusedBatchNormReluGrad, where y comes from such a
///      node of a training step, which keeps a bit for each element; what else reads the ReluGrad then reads that node.
/// Left alone: a norm or sum that has another reader, is fetched or fed, and nodes with control inputs.
class BatchNormFusion {
 public:
  /// Finds what is to be fused in `step`, which must outlive it and change by visit() alone from now on.
  BatchNormFusion(StepGraph& step, const PassDevices& devices);
  /// True if a fused node's output now stands for `node`. To be called for each node, inputs first.
  bool visit(const Node& node);

 private:
  struct Forward {
    const Node* norm;
    Output side;  // what is added; none: nothing
  };
  /// A ReluGrad and the gradient of the norm before it.
  struct Backward {
    const Node *norm, *forward;  // the gradient of the norm, and the norm
    bool side;                   // the ReluGrad has other readers
  };

  bool is_free(const Node& node, const Node& beside) const;
  /// Whether `output` is that of a norm that may go into a node behind it.
  bool is_norm(Output output, const Node& beside, const PassDevices& devices) const;
  void find_forward(const Node& relu, const PassDevices& devices);
  void find_backward(const Node& gradient, const PassDevices& devices);
  bool fuse_forward(const Node& norm, const Forward& parts);
  bool fuse_backward(const Node& relu, const Backward& parts);

  StepGraph& step_;
  const Readers readers_;
  bool control_flow_ = false;
  std::vector<size_t> places_;                    // by id: where in the order
  std::unordered_map<int, Forward> forward_;      // by id of the norm
  std::unordered_map<int, const Node*> behind_;   // the norm whose fused node stands for a sum or Relu, by its id
  std::unordered_map<int, const Node*> trained_;  // the same of Relus in training alone
  std::unordered_map<int, Backward> backward_;    // by id of the ReluGrad
  std::unordered_map<int, const Node*> fused_;    // what was made, by id of the norm or of its gradient
};

}  // namespace troupe
