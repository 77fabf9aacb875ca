// SPDX-License-Identifier: Apache-2.0
#include "graph/loops.h"

#include <algorithm>

namespace troupe {
namespace {

bool is_loop_merge(const Node& node) {
  return flow_of(node) == ControlFlow::kMerge &&
         (node.open() || std::ranges::any_of(node.inputs(), [](const Output& in) {
            return flow_of(*in.node) == ControlFlow::kNextIteration;
          }));
}

/// Whether frame `outer` is `inner` or around it.
bool is_around(const Frames& frames, int outer, int inner) {
  while (inner != outer && inner > 0) inner = frames.frames[static_cast<size_t>(inner)].parent;
  return inner == outer;
}

bool decides_loop(const Node& node) { return node.inputs()[1].node->op().name() == "LoopCond"; }

Error odd(const Node& node, std::string_view why) {
  Error error = make_error(Code::kUnimplemented, "a loop like this has no gradient: {}", why);
  error.node = node.name();
  error.op = node.op().name();
  return error;
}

}  // namespace

Result<Loops> Loops::find(const Graph& graph, const std::vector<Output>& ys) {
  Loops out;
  bool plain = true;
  for (int id = 0; id < graph.size() && plain; ++id) plain = flow_of(graph.node(id)) == ControlFlow::kNone;
  if (plain) return out;

  const std::lock_guard lock(graph.mutex());
  const StepGraph step(graph, {}, ys, {});
  TROUPE_ASSIGN(out.frames_, find_frames(step, OpenLoops::kAllowed));
  out.depths_.assign(static_cast<size_t>(graph.size()), 0);
  std::map<const Node*, std::pair<int, size_t>> carried;  // by merge: frame, index
  for (const Node* node : step.nodes()) {
    // Nodes come in topological order, but for the edges back.
    const bool loop_merge = is_loop_merge(*node);
    int depth = 0;
    const auto count = [&](const Node& before) {
      if (before.id() < node->id() || !loop_merge) depth = std::max(depth, out.depth_of(before));
    };
    for (const Output& in : node->inputs())
      if (flow_of(*in.node) != ControlFlow::kNextIteration) count(*in.node);
    for (const Node* before : node->control_inputs()) count(*before);
    if (flow_of(*node) == ControlFlow::kMerge && !loop_merge) depth = std::max(0, depth - 1);
    if (flow_of(*node) == ControlFlow::kSwitch && !decides_loop(*node)) ++depth;
    const int frame = out.frames_.of[static_cast<size_t>(node->id())];
    if (flow_of(*node) == ControlFlow::kAlive) {  // in every iteration
      const auto loop = out.loops_.find(frame);
      depth = loop == out.loops_.end() ? 0 : out.depth_of(*loop->second.carried[0].merge);
    }
    out.depths_[static_cast<size_t>(node->id())] = static_cast<int16_t>(depth);

    if (flow_of(*node) == ControlFlow::kEnter) {
      const int inner = out.frames_.of_output(*node);
      Loop& loop = out.loops_[inner];
      loop.frame = inner;
      loop.parent = frame;
      if (node->attrs().get_or<bool>("is_constant", false)) loop.invariants.push_back(node);
    } else if (node->open()) {
      if (!is_around(out.frames_, frame, out.frame_of(ys[0]))) return odd(*node, "it is not closed yet");
    } else if (loop_merge) {
      CarriedValue value;
      value.merge = node;
      for (const Output& in : node->inputs()) {
        if (flow_of(*in.node) == ControlFlow::kEnter) value.enter = in.node;
        if (flow_of(*in.node) == ControlFlow::kNextIteration) value.next = in.node;
      }
      if (!value.enter || node->inputs().size() != 2)
        return odd(*node, "it does not join an Enter and a NextIteration");
      Loop& loop = out.loops_[frame];
      carried[node] = {frame, loop.carried.size()};
      loop.carried.push_back(value);
    } else if (flow_of(*node) == ControlFlow::kSwitch && frame > 0 && decides_loop(*node)) {
      const auto at = carried.find(node->inputs()[0].node);
      if (at == carried.end()) continue;
      Loop& loop = out.loops_[frame];
      loop.carried[at->second.second].branch = node;
      loop.condition = node->inputs()[1];
    } else if (flow_of(*node) == ControlFlow::kExit) {
      const Node* branch = node->inputs()[0].node;
      if (flow_of(*branch) != ControlFlow::kSwitch) return odd(*node, "it does not follow a Switch");
      if (const auto at = carried.find(branch->inputs()[0].node); at != carried.end())
        out.loops_[frame].carried[at->second.second].exit = node;
    }
  }
  for (auto& [frame, loop] : out.loops_) {
    // A value of which nobody reads more than the condition has no Switch here.
    std::erase_if(loop.carried, [](const CarriedValue& v) { return !v.branch; });
  }
  return out;
}

int Loops::frame_of(Output output) const {
  if (const auto at = added_.find(output.node); at != added_.end()) return at->second.frame;
  const auto id = static_cast<size_t>(output.node->id());
  if (frames_.of.empty()) return 0;
  if (id >= frames_.of.size() || frames_.of[id] < 0) return -1;
  return frames_.of_output(*output.node);
}

const Loop* Loops::loop_in(int frame, const Node& node) const {
  if (loops_.empty() || static_cast<size_t>(node.id()) >= frames_.of.size()) return nullptr;
  int at = frames_.of[static_cast<size_t>(node.id())];
  if (flow_of(node) == ControlFlow::kEnter) at = frames_.of_output(node);
  while (at > 0 && !is_around(frames_, at, frame)) {
    const int parent = frames_.frames[static_cast<size_t>(at)].parent;
    if (is_around(frames_, parent, frame)) return &loops_.at(at);
    at = parent;
  }
  return nullptr;
}

int Loops::depth_of(const Node& node) const {
  if (const auto at = added_.find(&node); at != added_.end()) return at->second.depth;
  const auto id = static_cast<size_t>(node.id());
  return id < depths_.size() ? depths_[id] : 0;
}

bool Loops::maybe_dead(const Loop& loop, Output output) const {
  return depth_of(*output.node) > depth_of(*loop.carried[0].merge);
}

void Loops::add(Output output, int frame, Output like) { added_[output.node] = {frame, depth_of(*like.node)}; }

}  // namespace troupe
