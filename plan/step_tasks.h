// SPDX-License-Identifier: Apache-2.0
// The tasks of a step: its nodes as placement and its simulation take them.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "graph/frames.h"
#include "plan/constraints.h"
#include "plan/simulated_step.h"
#include "troupe/cost_model.h"

namespace troupe {

/// Devices on which every node takes the same time.
struct DeviceClass {
  std::string kind;  // "cpu"
  DeviceRates rates;
};

struct StepTasks {
  TaskGraph graph;
  std::vector<const Node*> nodes;              // by task
  std::vector<uint32_t> task_of;               // by node id; kNone: no task
  std::vector<std::vector<uint32_t>> allowed;  // devices, by group of tasks
};

/// Bytes that a device could have to hold in a step at most: all variables and all tensors.
double most_bytes(const StepGraph& step, std::span<const DeviceClass> classes, const CostModel* costs);

/// Makes one group of what had better be together, as far as constraints let it: a resource's handle with its reads and
/// updates, a loop with all within it, a node that only hands on with the node that it gets from, and where `alike`
/// says that no device is better than another, chains, which nothing can run beside.
void join_related(const StepGraph& step, const Frames& frames, bool alike, Constraints& constraints);

/// Every node is a task, but for constants, which each device that reads them has, what is fed, and what nobody can
/// wait for. One that runs several times (firings_of) is one task that takes as long as all of them. Times are those of
/// `costs` (nullptr: none), else estimates; so are the bytes of outputs whose shape is not inferred.
StepTasks make_tasks(const StepGraph& step, const Frames& frames, std::span<const DeviceClass> classes,
                     const CostModel* costs, const Constraints& constraints);

}  // namespace troupe
