// SPDX-License-Identifier: Apache-2.0
// The order of passes.
#include "graph/passes.h"

#include "graph/cse.h"

namespace troupe {

void run_passes(StepGraph& step, const GraphPasses& passes) {
  if (!passes.merge_common) return;
  CommonSubexpressions common(step);
  step.sweep([&](const Node& node) {
    const Node* same = common.find(node);
    if (!same) return;
    std::vector<Output> by;
    for (int port = 0; port < same->num_outputs(); ++port) by.push_back({same, port});
    step.replace(node, by);
  });
  step.drop_unneeded();
}

}  // namespace troupe
