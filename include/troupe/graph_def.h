// SPDX-License-Identifier: Apache-2.0
// Graphs as TensorFlow's GraphDef protobuf, binary and text. Implemented in graph/graph_def/graph_def.cpp and, as far
// as it freezes, graph/graph_def/frozen_graph.cpp.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "troupe/export.h"
#include "troupe/graph.h"

namespace TROUPE_API troupe {

/// The wire bytes of `graph` as GraphDef; TensorFlow and TensorBoard read them. Empty where they would be over 2 GiB,
/// which protobuf cannot write. Any thread, while another adds nodes too; both take the graph's mutex.
std::string to_graph_def(const Graph& graph);
/// The same as protobuf text.
std::string to_graph_def_text(const Graph& graph);

/// The wire bytes of what `outputs` need of `graph`, with each variable a constant of its name: a frozen graph, which
/// runs without a restore. `variables` has their values by name, as Engine::snapshot() gives them. Reads of variables
/// become identities, gathers from them GatherV2; tables, queues and the like stay. Takes the graph's mutex. Errors:
/// kNotFound for a variable without a value; kInvalidArgument for one that a node among these does more to than read,
/// for a value of another type or shape, and for no outputs; kUnimplemented for a gather with batch_dims from one;
/// kResourceExhausted for over 2 GiB.
Result<std::string> freeze_graph(const Graph& graph, const std::vector<Output>& outputs,
                                 const std::map<std::string, Tensor>& variables);

/// Adds all nodes of a GraphDef, binary or text (told apart by trying), to `graph`, below `prefix` if given.
/// Nodes may come in any order. Functions of the library are put in where they are called, If, Case and While become
/// Switch, Merge, Enter, Exit and NextIteration; the nodes of the calls stay, as IdentityN. Reference variables
/// (VariableV2, Assign, ApplyAdam, ...) become handles; the names of such nodes stay, and their outputs are values.
/// Errors: kDataLoss for bytes that are not a GraphDef or end early; kNotFound listing every unknown op with its nodes,
/// up to 20 of each; kAlreadyExists for a name that is there; kInvalidArgument for a missing input, a cycle (up to 20
/// of its nodes are named), a prefix that no name begins with, or what Graph::add refuses. After an error the graph may
/// hold some of the nodes; do not run it.
Status from_graph_def(std::string_view bytes, Graph& graph, std::string_view prefix = {});

/// Bytes that are read where they are needed, as a file's.
struct ByteSource {
  int64_t size = 0;
  /// Copies `bytes` bytes from `offset` on, which is called with no more than there are.
  std::function<Status(int64_t offset, void* to, size_t bytes)> read;
};

/// The same of what `source` has; large constants are read straight into their tensors. Errors: also those of `source`.
Status from_graph_def(const ByteSource& source, Graph& graph, std::string_view prefix = {});

}  // namespace troupe
