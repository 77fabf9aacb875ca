// SPDX-License-Identifier: Apache-2.0
// The passes between the nodes a step needs and its plan, in their order.
#pragma once
#include "graph/passes/fold_constants.h"
#include "graph/step_graph.h"
#include "troupe/graph_passes.h"

namespace troupe {

/// Rewrites `step` by the passes that are on; `evaluate` computes what is constant. Time and memory: linear in nodes
/// and their edges, beside what evaluation takes.
void run_passes(StepGraph& step, const GraphPasses& passes, const Evaluate& evaluate);

}  // namespace troupe
