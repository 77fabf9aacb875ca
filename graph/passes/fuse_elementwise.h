// SPDX-License-Identifier: Apache-2.0
// Fusing of element-wise nodes: chains and trees of them become one node, whose kernel keeps what is in between in the
// cache.
#pragma once
#include <span>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "graph/passes/pass_devices.h"
#include "graph/step_graph.h"

namespace troupe {

/// Ops that may be part of a _FusedElementwise, which must have a loop for each (ops/fused/elementwise.cpp).
std::span<const std::string_view> fusable_ops();

/// Finds groups of element-wise nodes of which all but the last, the root, are read within the group alone, and puts
/// one _FusedElementwise in place of each root. Within a group all have the same float type, device and inferred shape,
/// so nothing is computed twice and nothing that somebody else reads is computed again. Left alone: nodes with control
/// inputs or waited for by a control edge, fetched and fed ones but as a root, and where the device has no kernel for
/// it.
class ElementwiseFusion {
 public:
  static constexpr int kMostNodes = 24;

  /// Finds the groups in `step`, which must outlive it and change by visit() alone from now on.
  explicit ElementwiseFusion(StepGraph& step, PassDevices devices = {});
  /// True if a fused node now stands for `node`. To be called for each node, inputs first.
  bool visit(const Node& node);

 private:
  bool fusable(const Node& node) const;
  bool joins(const Node& node, int root) const;

  StepGraph& step_;
  const PassDevices devices_;
  std::unordered_set<const OpDef*> ops_;
  std::vector<int32_t> next_;  // by id: the member of its group before it; itself for the first; -1: not fusable
  std::vector<int32_t> size_;  // by id of a root: members; 0 for all others
};

}  // namespace troupe
