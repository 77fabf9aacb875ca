// SPDX-License-Identifier: Apache-2.0
// GraphPasses: which rewritings a session may apply to the nodes of a step. Implemented in graph/passes.cpp.
#pragma once

namespace troupe {

/// The passes between a graph and the plan of a step. A pass never changes the graph, only what a step makes of it,
/// and no result beyond rounding: what is fed, fetched or has an effect stays as it was, and errors name the nodes of
/// the graph. Runs that check numerics do without passes, so that the first node that made a NaN is found.
/// Nodes that no fetch or target needs never run, whatever is set here.
struct GraphPasses {
  /// What follows from constants alone is computed once for a plan. Where that fails, the step has the error.
  bool fold_constants = true;
  /// Nodes that change nothing or undo one another are left out: x * 1, two transpositions, casts there and back.
  bool simplify_arithmetic = true;
  /// Nodes of the same op, attributes, device and inputs run once.
  bool merge_common = true;

  /// The graph as it was written.
  static GraphPasses none() { return {false, false, false}; }
};

}  // namespace troupe
