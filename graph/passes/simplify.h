// SPDX-License-Identifier: Apache-2.0
// Arithmetic simplification: nodes that change nothing, or undo one another, leave a step.
#pragma once
#include <unordered_map>

#include "graph/step_graph.h"

namespace troupe {

/// Applies one rule to one node at a time. What the rules do, for every type unless told:
/// - x for: Identity, StopGradient and the like; x * 1, x / 1, x - 0, x + -0.0 (of integers 0), x ** 1; x and true,
///   x or false; a cast to x's own type; a second negation; a cast to a type that holds every x, and back; a
///   transposition, reshape, squeeze, padding, tiling or broadcast that leaves the shape; a reduction over no axis;
///   a sum or concatenation of one.
/// - One transposition for two; of two reshapes the second.
/// - x ** 2, x ** 3, x ** -1 as products and quotient, of floats: at most one rounding apart from the power. All others
///   give the same bits, but that a signalling NaN may turn quiet.
/// Left alone: x + 0.0, which makes 0.0 of -0.0; x * 0, since who waits for the product waits for x; nodes with control
/// inputs. So a node is dead, and in a loop, where it was.
class Simplification {
 public:
  /// What stands for the node's one output, or an empty Output.
  using Rule = Output (*)(StepGraph& step, const Node& node);

  /// `step` must outlive it.
  explicit Simplification(StepGraph& step);
  /// True if something else now stands for the node's outputs. To be called for each node, inputs first.
  bool visit(const Node& node);

 private:
  StepGraph& step_;
  std::unordered_map<const OpDef*, Rule> rules_;
};

}  // namespace troupe
