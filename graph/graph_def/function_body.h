// SPDX-License-Identifier: Apache-2.0
// The graphs of functions that nodes carry (tensor/function_caller.h). Implemented in graph/graph_def/graph_def.cpp.
#pragma once
#include <string_view>

#include "troupe/graph.h"

namespace troupe {

/// Adds the graph of a function, the bytes of a GraphDef or its text, to `graph`; resources that name no container are
/// of `container`. Errors: those of from_graph_def().
Status import_function(std::string_view bytes, Graph& graph, std::string_view container);

}  // namespace troupe
