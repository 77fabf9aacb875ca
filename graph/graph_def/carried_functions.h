// SPDX-License-Identifier: Apache-2.0
// Functions that nodes carry, such as that of a MapDataset, for whoever runs the node to call.
#pragma once
#include "graph/graph_def/function_library.h"

namespace troupe {

/// Puts a graph of its own in the place of each function that a node, which is none that calls, names: the bytes of a
/// GraphDef (tensor/function_caller.h). Errors: kNotFound for a function, or an op in one, that there is not;
/// kResourceExhausted for more bytes than calls may become (graph/graph_def/call_sizes.h).
Status carry_functions(proto::NodeDef& node, const FunctionLibrary& library);

}  // namespace troupe
