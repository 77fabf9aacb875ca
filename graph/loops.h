// SPDX-License-Identifier: Apache-2.0
// Loops: the loops of a graph as their gradients see them: values, invariants, conditions, and which nodes are in
// which loop.
#pragma once
#include <map>
#include <unordered_map>
#include <vector>

#include "graph/frames.h"

namespace troupe {

/// One value that a loop carries from iteration to iteration.
struct CarriedValue {
  const Node* enter = nullptr;
  const Node* merge = nullptr;
  const Node* branch = nullptr;  // the Switch
  const Node* next = nullptr;    // NextIteration
  const Node* exit = nullptr;    // nullptr: nobody reads it

  /// In an iteration that goes on.
  Output value() const { return branch->out(1); }
};

struct Loop {
  int frame = 0;
  int parent = 0;                       // frame
  Output condition;                     // the LoopCond
  std::vector<CarriedValue> carried;    // at least one
  std::vector<const Node*> invariants;  // Enter nodes of every iteration
};

class Loops {
 public:
  /// Of what `ys` need. The frames inside which a loop is not yet closed may be differentiated within, not through.
  /// Errors: those of find_frames; a loop that is not made of Enter, Merge, Switch and NextIteration as the white paper
  /// has it.
  static Result<Loops> find(const Graph& graph, const std::vector<Output>& ys);

  bool any() const { return !loops_.empty(); }
  /// The frame that an output belongs to; -1 for nodes that were not there when the loops were looked for and not
  /// told of since.
  int frame_of(Output output) const;
  /// The loop directly inside `frame`, or inside a frame around it, that `node` belongs to, as an Enter into it or a
  /// node in it; nullptr: it is a plain node of one of these frames.
  const Loop* loop_in(int frame, const Node& node) const;
  /// Whether a node is in a branch of its frame, so that it may not run.
  bool in_branch(const Node& node) const { return depth_of(node) > 0; }
  /// Whether an output of `loop`'s own frame may be dead in an iteration that goes on.
  bool maybe_dead(const Loop& loop, Output output) const;

  /// Tells that `output`, of a new node, belongs to `frame` and is dead or alive with `like`.
  void add(Output output, int frame, Output like);

 private:
  struct Added {
    int frame;
    int depth;
  };
  int depth_of(const Node& node) const;

  Frames frames_;
  std::map<int, Loop> loops_;    // by frame
  std::vector<int16_t> depths_;  // by node id: branches around it
  std::unordered_map<const Node*, Added> added_;
};

}  // namespace troupe
