// SPDX-License-Identifier: Apache-2.0
// Says of each snapshot of a dataset in a GraphDef by what its elements are made, so that another pipeline of the same
// path has a snapshot of its own.
#pragma once
#include <vector>

#include "graph/graph_def/graph.pb.h"
#include "troupe/tensor.h"

namespace troupe {

/// Gives SnapshotDatasetV2 nodes that have no valid hash one of the nodes, without their names, from which their
/// input_dataset comes. `apart` are the contents of large constants (large_constants.h).
void hash_snapshots(proto::GraphDef& def, const std::vector<Tensor>& apart);

}  // namespace troupe
