// SPDX-License-Identifier: Apache-2.0
// Loops that one device carries out in a fixed order, without counts.
#pragma once
#include "devices/step_plan.h"
#include "graph/frames.h"

namespace troupe {

/// By frame: whether all its Enters can be waited for before its first iteration begins. Not so where one waits for
/// what comes out of the loop.
std::vector<bool> frames_that_wait(const StepGraph& step, const Frames& frames);

/// Finds the order of each loop that has one. It is a loop as in the white paper: all Switches have one predicate, each
/// Merge chooses between an Enter and a NextIteration, and what comes out comes from the Switches. All in it computes
/// on one device: no branches, loops, resources, files or other devices.
void order_loops(StepPlan& plan, const StepGraph& step, const Frames& frames);

}  // namespace troupe
