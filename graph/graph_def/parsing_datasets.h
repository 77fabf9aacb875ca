// SPDX-License-Identifier: Apache-2.0
// Datasets that parse records, as maps: ParseExampleDataset is a map by ParseExampleV2, and becomes one when a graph is
// read.
#pragma once
#include <string_view>

#include "graph/graph_def/graph.pb.h"
#include "troupe/error.h"

namespace troupe {

/// What such an op becomes, as text; empty where `op` is another.
std::string_view form_of_parsing(std::string_view op);

/// Makes the node that map. Errors: inputs or attributes that are not there, or not as many as one another.
Status parse_by_map(proto::NodeDef& node);

}  // namespace troupe
