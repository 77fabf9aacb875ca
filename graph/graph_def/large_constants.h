// SPDX-License-Identifier: Apache-2.0
// Parses a GraphDef so that the raw bytes of its large constants go straight from where they are into tensors: the
// message, which protobuf would copy them to, is small.
#pragma once
#include <vector>

#include "graph/graph_def/graph.pb.h"
#include "troupe/graph_def.h"
#include "troupe/tensor.h"

namespace troupe {

/// Parses the wire bytes of a GraphDef; false where they are not one. A constant of a node whose raw bytes are many has
/// in content_apart where in `apart` they are, counted from 1, as tensors of uint8. Errors: those of `source`; memory
/// refused.
Result<bool> parse_apart(const ByteSource& source, proto::GraphDef& def, std::vector<Tensor>& apart);

}  // namespace troupe
