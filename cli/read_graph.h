// SPDX-License-Identifier: Apache-2.0
// Graphs from the files that a command line names.
#pragma once
#include <string>
#include <vector>

#include "troupe/graph.h"

namespace troupe {

/// Adds the nodes of a GraphDef's file, or of the graph of a SavedModel or a .meta file with these tags, to `graph`.
/// Errors: those of from_graph_def, with the file and, where it is not a graph, what it is.
Status read_graph(const std::string& path, const std::vector<std::string>& tags, Graph& graph);

/// from_graph_def of what the file `path` held; errors as read_graph().
Status add_graph(const std::string& bytes, const std::string& path, Graph& graph);

}  // namespace troupe
