// SPDX-License-Identifier: Apache-2.0
// Frames: which loop each node runs in (white paper, 4.4). The frame of the step itself is 0; an Enter leads into the
// frame that it names, an Exit out of it.
#pragma once
#include <string>
#include <vector>

#include "graph/step_graph.h"

namespace troupe {

/// How the node steers what runs.
inline ControlFlow flow_of(const Node& node) { return node.op().control_flow(); }
/// Whether it is an Enter that brings a value into every iteration of its loop.
inline bool is_constant_enter(const Node& node) {
  return flow_of(node) == ControlFlow::kEnter && node.attrs().get_or<bool>("is_constant", false);
}

struct Frame {
  std::string name;  // the attribute frame_name; two loops inside different frames may share it
  int parent = 0;
  int parallel_iterations = 1;
};

/// Whether loops that are still being built count as faults.
enum class OpenLoops { kRefused, kAllowed };

struct Frames {
  std::vector<Frame> frames = {Frame()};
  std::vector<int> of;  // by node id: the frame a node runs in, that of its inputs; -1: not a node of the step

  bool loops() const { return frames.size() > 1; }
  /// The frame that the outputs of a node belong to: another than of[] for Enter and Exit.
  int of_output(const Node& node) const;
  /// The loop directly inside the step's own frame that `frame` is, or is within.
  int outermost(int frame) const;

 private:
  friend Result<Frames> find_frames(const StepGraph&, OpenLoops);
  std::vector<std::pair<int, int>> entered_;  // (id of an Enter, frame), by id
};

/// kInvalidArgument for a loop that was not closed. The caller holds the graph's mutex, or adds its nodes itself: once
/// this is right, no node of the step changes any more.
Status check_closed(const StepGraph& step);

/// The frames of the nodes of `step`. Inputs that are fed do not count. Errors, kInvalidArgument: a node whose inputs
/// are of different frames (all are named), an Exit or NextIteration outside of every loop, a loop that was not closed.
Result<Frames> find_frames(const StepGraph& step, OpenLoops open = OpenLoops::kRefused);

}  // namespace troupe
