// SPDX-License-Identifier: Apache-2.0
// The order of passes.
#include "graph/passes.h"

#include "graph/cse.h"
#include "graph/simplify.h"

namespace troupe {
namespace {

bool merge(StepGraph& step, CommonSubexpressions& common, const Node& node) {
  const Node* same = common.find(node);
  if (!same) return false;
  std::vector<Output> by;
  for (int port = 0; port < same->num_outputs(); ++port) by.push_back({same, port});
  step.replace(node, by);
  return true;
}

}  // namespace

void run_passes(StepGraph& step, const GraphPasses& passes, const Evaluate& evaluate) {
  // One walk for all that look at a node and what its inputs have become: each finds what the others leave.
  std::optional<ConstantFolding> folding;
  std::optional<Simplification> simplification;
  std::optional<CommonSubexpressions> common;
  if (passes.fold_constants) folding.emplace(step, evaluate);
  if (passes.simplify_arithmetic) simplification.emplace(step);
  if (passes.merge_common) common.emplace(step);
  if (!folding && !simplification && !common) return;
  step.sweep([&](const Node& node) {
    if (folding && folding->visit(node)) return;
    if (simplification && simplification->visit(node)) return;
    if (common) merge(step, *common, node);
  });
  step.drop_unneeded();
}

}  // namespace troupe
