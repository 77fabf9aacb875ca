// SPDX-License-Identifier: Apache-2.0
// What from_graph_def() does once the bytes are parsed, how it parses, and how graphs are written.
#pragma once
#include <google/protobuf/message.h>

#include <string_view>

#include "graph/graph_def/graph.pb.h"
#include "troupe/graph.h"

namespace troupe {

/// Parses a message of TensorFlow's, `what`, from its wire bytes or its text. Errors: kDataLoss for bytes that are
/// neither, that end early, or that have none of the message's fields.
Status parse_binary_or_text(std::string_view bytes, std::string_view what, google::protobuf::Message& out);

/// Adds the nodes of `def`, of which it makes use, to `graph`. See from_graph_def(). Resources that name no container
/// are of `container`.
Status import_graph(proto::GraphDef& def, Graph& graph, std::string_view prefix, std::string_view container);

/// Writes all nodes of `graph`, in the order of their ids. Takes its mutex.
void to_proto(const Graph& graph, proto::GraphDef& out);

}  // namespace troupe
