// SPDX-License-Identifier: Apache-2.0
// Ops of TensorFlow that find their resource by the names in their attributes, not by a handle.
#pragma once
#include <string>
#include <string_view>

#include "graph/graph_def/graph.pb.h"
#include "troupe/op.h"

namespace troupe {

/// What such an op becomes, as text; empty for any other op.
std::string form_with_handle(std::string_view op, const OpRegistry& ops);

/// Gives such ops of `def` a handle: AddSparseToTensorsMap and AddManySparseToTensorsMap become a SerializeSparse or
/// SerializeManySparse and a _SparseTensorsMapInsert, TakeManySparseFromTensorsMap a _SparseTensorsMapTake and a
/// DeserializeSparse; Stage, Unstage, StagePeek, StageSize and StageClear become a _StagingArea and an op on it,
/// MapStage and its like, and OrderedMapStage and its, a _StagingMap and an op on it. What has outputs that others read
/// keeps the node's name. Ops that `ops` has stay as they are.
void give_handles(proto::GraphDef& def, const OpRegistry& ops);

}  // namespace troupe
