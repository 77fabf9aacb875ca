// SPDX-License-Identifier: Apache-2.0
// LoopBuilder: adds values to a loop. Each is an Enter, a Merge, a Switch, a NextIteration and an Exit; a loop is the
// values that share a frame and a condition. Builds new loops and widens those that are there.
#pragma once
#include <memory>
#include <string>

#include "graph/flow_context.h"
#include "troupe/scope.h"

namespace troupe {

/// One value of a loop.
struct LoopValue {
  Output merge;  // in each iteration, before the condition is known
  Output value;  // in an iteration that goes on
  Output exit;   // outside, when the loop has ended
};

/// A shape as lists of tensors take it: a vector with -1 for sizes that are not known; a scalar -1 for any rank.
Output size_vector(const Scope& scope, const PartialShape& shape);

class LoopBuilder {
 public:
  /// A new loop: Enter and Exit go to `outer`, whose prefix names the frame; what is in the loop goes to inside().
  LoopBuilder(const Scope& outer, int64_t parallel_iterations);
  /// A loop that is there already: `enter` is one of its Enter nodes, `condition` its LoopCond. Nodes in the loop take
  /// what they are given as it is.
  LoopBuilder(const Scope& outer, const Node& enter, Output condition);

  /// Where the nodes in the loop go. Without inputs they wait for the pivot, see set_pivot.
  const Scope& inside() const { return inside_; }
  FlowContext& context() const { return *context_; }
  /// Nodes in the loop that have no inputs wait for `node` from now on.
  void set_pivot(const Node* node) { context_->set_pivot(node); }

  /// Brings a value from outside into the first iteration, or into every one.
  Output enter(Output value, bool every_iteration) const;
  /// Begins a value that stays within `shape`; its merge only. Empty after a fault.
  Output open(Output init, const PartialShape& shape) const;
  /// The condition, known once the values it depends on are open.
  void set_condition(Output predicate) { condition_ = inside_.named("loop_cond").op("LoopCond", {predicate}); }
  /// The rest of an open value. Empty after a fault.
  LoopValue split(Output merge) const;
  /// open() and split(), once there is a condition.
  LoopValue add(Output init, const PartialShape& shape) const { return split(open(init, shape)); }
  /// What the value is in the next iteration. Faults stick to the scope.
  void close(const LoopValue& value, Output next) const;

 private:
  /// Whether `output` is only there in iterations that go on.
  bool ends_with_condition(Output output) const;

  Scope outer_;
  std::shared_ptr<FlowContext> context_;
  Scope inside_;
  std::string frame_;
  int64_t parallel_;
  Output condition_;
};

}  // namespace troupe
