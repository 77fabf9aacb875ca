// SPDX-License-Identifier: Apache-2.0
// Puts a node into a function, so that the op fuzzer also runs it as graphs of functions do. Implemented in
// op_call.cpp.
#pragma once
#include <string>

#include "troupe/graph.h"

namespace troupe::fuzz {

/// The bytes of a GraphDef that calls a function whose one node is like `node` of `graph`: by a PartitionedCall, or as
/// every branch of an If or a Case, as `turn` says. Its placeholders are x0, x1, ... for the inputs of the node, and p,
/// the choice of the branch, a bool for an If and an int32 for a Case; the outputs are those of "call".
std::string call_of(const Graph& graph, const Node& node, int64_t turn);

}  // namespace troupe::fuzz
