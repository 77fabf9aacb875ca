// SPDX-License-Identifier: Apache-2.0
// Placement of a step that passes have been over, for those who plan it.
#pragma once
#include "plan/assignment.h"
#include "plan/step_tasks.h"
#include "troupe/placement.h"

namespace troupe {

struct StepPlacement {
  StepTasks tasks;
  Cluster cluster;
  Assignment assignment;
  std::vector<DeviceClass> classes;

  /// Where a node of the step goes; of one that is no task, where its first reader is.
  uint32_t device_of(const Node& node) const { return by_id[static_cast<size_t>(node.id())]; }
  std::vector<uint32_t> by_id;
};

/// Chooses among the devices that `constraints` leave; joins in them what had better be together.
StepPlacement place_step(const StepGraph& step, const Frames& frames, std::span<const PlacementDevice> devices,
                         const Links& links, const CostModel* costs, Placing placing, Constraints& constraints);

}  // namespace troupe
