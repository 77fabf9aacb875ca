// SPDX-License-Identifier: Apache-2.0
// Opening of batch norms: what shifts and scales the images goes into the element-wise groups that read them.
#pragma once
#include <unordered_set>

#include "graph/passes/pass_devices.h"
#include "graph/step_graph.h"

namespace troupe {

/// In training on CPUs, FusedBatchNormV3 with channels last whose y only element-wise nodes read becomes
/// _BatchNormStatistics, which gives all but y, and (x - mean) * factor + offset in place of y. ElementwiseFusion then
/// computes that in the groups that read it, also again in those of the gradients: y is neither written nor kept for
/// them. The sum is rounded as that of three functions. Left alone: a norm that is fetched, fed or waited for, has
/// control inputs or 16-bit images.
class BatchNormOpening {
 public:
  /// Finds what is to be opened in `step`, which must outlive it and change by visit() alone from now on.
  BatchNormOpening(StepGraph& step, const PassDevices& devices);
  /// True if nodes now stand for `norm`. To be called for each node, inputs first.
  bool visit(const Node& norm);

 private:
  /// Whether the norm is such, whatever its readers are.
  bool may_open(const Node& norm, const PassDevices& devices) const;
  /// Whether the node reads `y` element by element, and may be part of a group.
  bool fits(const Node& reader, Output y) const;

  StepGraph& step_;
  std::unordered_set<const Node*> opened_;
};

}  // namespace troupe
