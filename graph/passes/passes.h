// SPDX-License-Identifier: Apache-2.0
// The passes between the nodes a step needs and its plan, in their order.
#pragma once
#include "graph/passes/fold_constants.h"
#include "graph/passes/pass_devices.h"
#include "graph/step_graph.h"
#include "troupe/graph_passes.h"

namespace troupe {

/// Rewrites `step` by the passes that are on and whose results all devices have; `evaluate` computes what is constant.
/// Time and memory: linear in nodes and their edges, beside what evaluation takes.
void run_general_passes(StepGraph& step, const GraphPasses& passes, const Evaluate& evaluate);
/// By the others, once it is known where nodes will run. What they make has the name and device of what it replaces.
/// Beside GPUs logic is kept at the host (HostLogic), whatever is on.
void run_device_passes(StepGraph& step, const GraphPasses& passes, const PassDevices& devices);
/// Whether one of those has to do that asks for devices.
bool asks_for_devices(const StepGraph& step, const GraphPasses& passes);
/// All of them, where all nodes run on CPUs.
void run_passes(StepGraph& step, const GraphPasses& passes, const Evaluate& evaluate);

}  // namespace troupe
