// SPDX-License-Identifier: Apache-2.0
// What from_graph_def() does once the bytes are parsed, how it parses, and how graphs are written.
#pragma once
#include <google/protobuf/message.h>

#include <string_view>

#include "graph/graph_def/graph.pb.h"
#include "troupe/graph.h"

namespace troupe {

/// Parses the wire bytes of a message: false where they are malformed, nested too deep, or have none of its fields.
bool parse_wire(std::string_view bytes, google::protobuf::Message& out);

/// Parses a message of TensorFlow's, `what`, from its wire bytes or its text. Errors: kDataLoss for bytes that are
/// neither, that end early, or that have none of the message's fields.
Status parse_binary_or_text(std::string_view bytes, std::string_view what, google::protobuf::Message& out);

/// Adds the nodes of `def`, of which it makes use, to `graph`. See from_graph_def(). Resources that name no container
/// are of `container`. `apart` has the contents of tensors that were read apart (large_constants.h).
Status import_graph(proto::GraphDef& def, Graph& graph, std::string_view prefix, std::string_view container,
                    std::vector<Tensor> apart = {});

/// Writes all nodes of `graph`, in the order of their ids. Takes its mutex.
void to_proto(const Graph& graph, proto::GraphDef& out);

}  // namespace troupe
