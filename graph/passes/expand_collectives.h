// SPDX-License-Identifier: Apache-2.0
// The nodes that carry a collective out, in place of the one node by which a graph says what is to be done
// (troupe/collectives.h, ops/control/collectives.cpp).
#pragma once
#include "graph/step_graph.h"

namespace troupe {

/// Puts rings of chunks, as troupe/collectives.h has them, in place of _AllReduce, _ReduceScatter, _AllGather and
/// _Broadcast. Every node that it makes is on the device that the collective names for it. Not one of the passes that a
/// session may leave out: nothing else can run such a node. Errors: kInvalidArgument where an output is fed.
Status expand_collectives(StepGraph& step);

}  // namespace troupe
