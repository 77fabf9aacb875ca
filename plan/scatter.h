// SPDX-License-Identifier: Apache-2.0
// Scatter: the nodes of a step on random devices of a cluster's tasks, whatever devices they ask for
// (ClusterOptions::scatter).
#pragma once
#include "plan/constraints.h"

namespace troupe {

/// The devices by the ids of nodes; those of nodes that the step does not need mean nothing. `constraints` were found
/// for the step with ConstraintOptions::any_device. What must be together is: nodes of a group, all nodes of the graph
/// that use a resource, and those that share one with these. Their device follows from `seed` and the name of the first
/// of them, so that steps of other signatures find resources where they are. Iterators stay with the client, whose
/// datasets they read, and so does all where no task but `own` has devices. The caller holds the graph's mutex.
std::vector<uint32_t> scatter(const Graph& graph, const StepGraph& step, const Constraints& constraints,
                              const DeviceList& devices, const std::string& own, uint64_t seed);

}  // namespace troupe
