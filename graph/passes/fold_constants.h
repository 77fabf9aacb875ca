// SPDX-License-Identifier: Apache-2.0
// Folding of constants: what follows from constants alone is computed once for a plan, not in each of its steps.
#pragma once
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "graph/step_graph.h"

namespace troupe {

/// The outputs of `node` computed from the values of its inputs, all that it declares. None where it has no kernel for
/// that, or one that fails or puts out something else.
using Evaluate = std::function<std::optional<std::vector<Tensor>>(const Node& node, std::span<const Tensor> inputs)>;

/// Puts constants in place of nodes whose inputs are all constants, and of Shape, Size and Rank of a known shape,
/// unless that depends on something stateful or on control flow: who waits for the size then waits for that as well,
/// is dead where that is dead, and runs in its loop.
/// Left alone: stateful ops, nodes with control inputs, those whose result would be larger than both its inputs and
/// kMostBytes, and those whose evaluation fails, so that the error comes when the step runs.
class ConstantFolding {
 public:
  static constexpr int64_t kMostBytes = 64 << 10;

  /// `step` must outlive it.
  ConstantFolding(StepGraph& step, Evaluate evaluate);
  /// True if constants now stand for the node's outputs. To be called for each node, inputs first.
  bool visit(const Node& node);

 private:
  /// What decides how nodes of an op are treated.
  enum class Kind : uint8_t { kPure, kOfShape, kEffect };
  Kind kind(const Node& node);
  bool fold(const Node& node);
  bool put(const Node& node, std::vector<Tensor> values);

  StepGraph& step_;
  const Evaluate evaluate_;
  std::unordered_map<const OpDef*, Kind> kinds_;
  std::vector<bool> after_effect_;  // by id: depends on a node of kind kEffect
};

}  // namespace troupe
