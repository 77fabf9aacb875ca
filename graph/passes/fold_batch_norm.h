// SPDX-License-Identifier: Apache-2.0
// Folding of batch normalisation into convolutions.
#pragma once
#include <unordered_set>

#include "graph/passes/readers.h"

namespace troupe {

/// At inference a batch norm is a factor and a shift for each channel. Puts in place of
/// FusedBatchNorm*(Conv2D(x, filter) [+ bias]) with is_training false the nodes BiasAdd(Conv2D(x, filter'), bias'), of
/// Conv2D and DepthwiseConv2dNative, where filter, bias and the statistics are constants and the convolution has no
/// other reader. The new filter belongs to the plan: it takes as much memory as the old one. Products with and sums of
/// a constant for each channel after such a convolution go into filter and bias too: a batch norm as Keras writes it.
class BatchNormFolding {
 public:
  /// `step` must outlive it and change by visit() alone from now on.
  explicit BatchNormFolding(StepGraph& step);
  /// True if something else now stands for the node's outputs. To be called for each node, inputs first.
  bool visit(const Node& node);

 private:
  bool folds_away(const Node& node, const Node& reader) const;
  /// The same for a Mul or a sum.
  bool fold_vector(const Node& node);

  StepGraph& step_;
  const Readers readers_;
  std::unordered_set<const Node*> read_once_;  // of those made here
};

}  // namespace troupe
