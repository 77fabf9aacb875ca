// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any bytes as GraphDef, over all ops. What loads must survive being written and read again.
//   graph_def_fuzz -max_total_time=60 corpus
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tests/op_library.h"
#include "troupe/graph_def.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const troupe::OpRegistry& ops = troupe::testing::op_library()->ops;
  troupe::Graph graph(ops), again(ops);
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (!troupe::from_graph_def(bytes, graph).ok() || graph.size() == 0) return 0;
  if (!troupe::from_graph_def(troupe::to_graph_def(graph), again).ok() || again.size() != graph.size()) std::abort();
  return 0;
}
