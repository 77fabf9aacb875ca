// SPDX-License-Identifier: Apache-2.0
// The nodes that carry a collective out, in place of the one node by which a graph says what is to be done
// (troupe/collectives.h, ops/control/collectives.cpp).
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "graph/step_graph.h"

namespace troupe {

/// The full names of the devices of a collective, where a library carries it out: each is on another card. None: it
/// takes the ring.
using FindCards = std::function<std::optional<std::vector<std::string>>(const Node& collective)>;

/// Puts rings of chunks, as troupe/collectives.h has them, in place of _AllReduce, _ReduceScatter, _AllGather and
/// _Broadcast (of an _AllReduce in the order of the devices, the exchange of troupe/tensor_parallel.h), or, where
/// `cards` finds some, a _CollectiveRank for each device. Every node that it makes is on the
/// device that the collective names for it. Ranks wait for one another, so all live or all are dead, as their inputs
/// are, and in a loop those of one iteration know one another. Not one of the passes that a session may leave out:
/// nothing else can run such a node. Errors: kInvalidArgument where an output is fed, or a graph has ranks of its own.
Status expand_collectives(StepGraph& step, const FindCards& cards = {});

}  // namespace troupe
