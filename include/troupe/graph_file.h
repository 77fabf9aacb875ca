// SPDX-License-Identifier: Apache-2.0
// Graphs from files of GraphDef. Implemented in actors/graph_file.cpp.
#pragma once
#include <string>
#include <string_view>

#include "troupe/error.h"
#include "troupe/export.h"
#include "troupe/graph.h"

namespace TROUPE_API troupe {

/// from_graph_def() of a file, binary or text, whose large constants are read straight into their tensors. The file may
/// change afterwards. Errors: those of from_graph_def(), and what names the file: kNotFound, kInvalidArgument for what
/// is not a regular file, kDataLoss where it ends while it is read.
Status read_graph_def(const std::string& path, Graph& graph, std::string_view prefix = {});

}  // namespace troupe
