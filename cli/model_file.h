// SPDX-License-Identifier: Apache-2.0
// A SavedModel or .meta file that a command line names, read but not run. Implemented in cli/read_graph.cpp.
#pragma once
#include <string>

#include "graph/graph_def/meta_graph.h"
#include "io/model_files.h"

namespace troupe {

struct ModelFile {
  ModelFiles files;
  size_t bytes = 0;  // of the file of the graph
  MetaGraphs graphs;

  /// Errors: those of find_model() and MetaGraphs, with the file and, where it is another kind of file, what it is.
  static Result<ModelFile> open(const std::string& path);
};

}  // namespace troupe
