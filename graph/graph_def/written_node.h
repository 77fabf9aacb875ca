// SPDX-License-Identifier: Apache-2.0
// Nodes of a graph that is written for others to load. Implemented in graph/graph_def/frozen_graph.cpp.
#pragma once
#include "graph/graph_def/graph.pb.h"

namespace troupe {

/// Makes `of`, written as `node`, fit a GraphDef of some of a graph's nodes, which TensorFlow loads: it goes with no
/// other node, is in the container of whoever loads it, and does not tell its shapes as they were in another graph.
/// Functions that it carries come to be named, and go to the library of `out` with what they call. A convolution of
/// several groups of channels becomes a call of a function to compile, without which TensorFlow has none on CPUs.
void write_apart(const Node& of, proto::NodeDef& node, proto::GraphDef& out);

}  // namespace troupe
