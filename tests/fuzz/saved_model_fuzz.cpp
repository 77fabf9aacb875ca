// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any bytes as a SavedModel, or after a first byte of 1 as a MetaGraphDef, over all ops. What is read
// must be added to a graph or refused.
//   saved_model_fuzz -max_total_time=60 corpus
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "graph/graph_def/meta_graph.h"
#include "tests/op_library.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const troupe::OpRegistry& ops = troupe::testing::op_library()->ops;
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  auto file = data[0] == 1 ? troupe::MetaGraphs::of_meta_graph(bytes) : troupe::MetaGraphs::of_saved_model(bytes);
  if (!file.ok()) return 0;
  if (file->graphs().empty()) std::abort();
  for (size_t i = 0; i < file->graphs().size(); ++i) {
    const auto found = file->find(file->graphs()[i].tags);
    if (!file->graphs()[i].tags.empty() && !found.ok()) std::abort();
    troupe::Graph graph(ops);
    (void)file->add_to(i, graph, "container").ok();
  }
  return 0;
}
