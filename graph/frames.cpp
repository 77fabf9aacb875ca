// SPDX-License-Identifier: Apache-2.0
// Frames follow the edges: forward from each Enter to its Exits.
#include "graph/frames.h"

#include <algorithm>
#include <map>

namespace troupe {
namespace {

/// Loops within loops; real graphs have a few.
constexpr int kMostNestedLoops = 64;

Error at_node(Error error, const Node& node) {
  error.node = node.name();
  error.op = node.op().name();
  return error;
}

/// With the loops around it: two loops inside different ones may share a name.
std::string describe(const std::vector<Frame>& frames, int frame) {
  if (frame == 0) return "outside of every loop";
  std::string out = "in loop '" + frames[static_cast<size_t>(frame)].name + "'";
  while ((frame = frames[static_cast<size_t>(frame)].parent) != 0)
    out += " within '" + frames[static_cast<size_t>(frame)].name + "'";
  return out;
}

}  // namespace

int Frames::of_output(const Node& node) const {
  const int frame = of[static_cast<size_t>(node.id())];
  switch (node.op().control_flow()) {
    case ControlFlow::kEnter:
      return std::ranges::lower_bound(entered_, node.id(), {}, &std::pair<int, int>::first)->second;
    case ControlFlow::kExit: return frames[static_cast<size_t>(frame)].parent;
    default: return frame;
  }
}

int Frames::outermost(int frame) const {
  while (frames[static_cast<size_t>(frame)].parent != 0) frame = frames[static_cast<size_t>(frame)].parent;
  return frame;
}

Status check_closed(const StepGraph& step) {
  if (!step.open_merge()) return {};
  return at_node(invalid_argument("the loop was not closed: its second input is missing"), *step.open_merge());
}

Result<Frames> find_frames(const StepGraph& step, OpenLoops open) {
  if (open == OpenLoops::kRefused) TROUPE_RETURN_IF_ERROR(check_closed(step));
  Frames out;
  out.of.assign(static_cast<size_t>(step.ids()), -1);
  std::map<std::pair<int, std::string>, int> known;  // by parent and name
  std::vector<int> depths(out.frames.size(), 0);     // by frame
  for (const Node* node : step.nodes()) {
    int frame = 0;
    const Node* teller = nullptr;
    const auto follow = [&](const Node& input) -> Status {
      if (out.of[static_cast<size_t>(input.id())] < 0) return {};
      const int told = out.of_output(input);
      if (teller && told != frame)
        return at_node(invalid_argument("inputs are of different frames: '{}' is {}, '{}' is {}", teller->name(),
                                        describe(out.frames, frame), input.name(), describe(out.frames, told)),
                       *node);
      frame = told;
      teller = &input;
      return {};
    };
    for (const Output& in : node->inputs())
      if (const Output now = step.now(in); !step.is_fed(now)) TROUPE_RETURN_IF_ERROR(follow(*now.node));
    Status controls;
    step.for_each_control(*node, [&](const Output& before) {
      if (controls.ok()) controls = follow(*before.node);
    });
    TROUPE_RETURN_IF_ERROR(std::move(controls));
    out.of[static_cast<size_t>(node->id())] = frame;

    const ControlFlow flow = node->op().control_flow();
    if (flow == ControlFlow::kNone) continue;
    if (frame == 0 && (flow == ControlFlow::kExit || flow == ControlFlow::kNextIteration))
      return at_node(invalid_argument("is outside of every loop, or what it reads there is fed"), *node);
    if (flow != ControlFlow::kEnter) continue;
    const auto& name = *node->attrs().get<std::string>("frame_name");
    const auto parallel =
        static_cast<int>(std::clamp<int64_t>(node->attrs().get_or<int64_t>("parallel_iterations", 10), 1, INT32_MAX));
    if (name.empty()) return at_node(invalid_argument("frame_name is empty"), *node);
    const auto [at, fresh] = known.try_emplace({frame, name}, static_cast<int>(out.frames.size()));
    if (fresh) {
      if (depths[static_cast<size_t>(frame)] == kMostNestedLoops)
        return at_node(invalid_argument("loops must nest at most {} deep", kMostNestedLoops), *node);
      out.frames.push_back({name, frame, parallel});
      depths.push_back(depths[static_cast<size_t>(frame)] + 1);
    }
    out.entered_.insert(std::ranges::upper_bound(out.entered_, node->id(), {}, &std::pair<int, int>::first),
                        {node->id(), at->second});
  }
  // Back edges lead from a later node to an earlier one.
  for (const Node* node : step.nodes())
    if (node->op().control_flow() == ControlFlow::kMerge)
      for (const Output& written : node->inputs())
        if (const Output in = step.now(written); !step.is_fed(in) && out.of[static_cast<size_t>(in.node->id())] >= 0)
          if (const int output = out.of_output(*in.node); output != out.of[static_cast<size_t>(node->id())])
            return at_node(invalid_argument("inputs are of different frames: it is {}, '{}' is {}",
                                            describe(out.frames, out.of[static_cast<size_t>(node->id())]),
                                            in.node->name(), describe(out.frames, output)),
                           *node);
  return out;
}

}  // namespace troupe
