// SPDX-License-Identifier: Apache-2.0
// SavedModels written: the part of a graph that signatures need, with ops that save and restore its variables.
// Implemented in graph/graph_def/exported_model.cpp.
#pragma once
#include <string>
#include <vector>

#include "graph/graph_def/meta_graph.h"

namespace troupe {

/// A variable of the model, which its checkpoint must have under this name.
struct ExportedVariable {
  std::string name;
  DType dtype = DType::kInvalid;
  PartialShape shape;
};

/// The bytes of a SavedModel with one graph: what the signatures, the assets and the initialiser of `meta` need of
/// `graph`, whose tensors and nodes they name, and ops that save and restore the variables; what `meta` says of such
/// ops is not looked at. Nodes ask for no devices and no containers. `variables` gets the variables, by name. Takes the
/// graph's mutex. Errors: kInvalidArgument for tensors that are not there, no signatures and no outputs, outputs that
/// need a placeholder which is not an input, two variables of one name in two containers, and tables that must be
/// filled and are not; kResourceExhausted for over 2 GiB.
Result<std::string> to_saved_model(const Graph& graph, const MetaGraph& meta, std::vector<ExportedVariable>& variables);

}  // namespace troupe
