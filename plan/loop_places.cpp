// SPDX-License-Identifier: Apache-2.0
// Which loops may be spread, then where their nodes go.
#include "plan/loop_places.h"

#include <algorithm>

namespace troupe {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

/// What carries one value of a loop.
struct Carrier {
  const Node* enter = nullptr;
  const Node* next = nullptr;
  uint32_t device = kNone;
};

class Finder {
 public:
  Finder(const StepGraph& step, const Frames& frames, const LoopPlaces::Wishes& wishes)
      : step_(step), frames_(frames), wishes_(wishes), depths_(static_cast<size_t>(step.ids())),
        frame_depths_(frames.frames.size()), conditions_(frames.frames.size()),
        devices_(static_cast<size_t>(step.ids()), kNone) {}

  /// Looks which loops are as they should be.
  void check() {
    for (const Node* node : step_.nodes())
      if (flow_of(*node) == ControlFlow::kExit) note_condition(*node);
    for (const Node* node : step_.nodes()) {
      if (is_loop_merge(*node)) note_carrier(*node);
      note_depth(*node);
    }
    for (const Node* node : step_.nodes()) check(*node);
    for (size_t f = 1; f < frames_.frames.size(); ++f) {
      const Output condition = conditions_[f];
      if (!condition || step_.is_fed(condition) || frame_of(*condition.node) != static_cast<int>(f) ||
          flow_of(*condition.node) != ControlFlow::kNone || condition.node->op().name() == "Const" ||
          depth_of(*condition.node) > 0)
        odd(static_cast<int>(f));
    }
    for (const auto& [merge, carrier] : carriers_)
      if (depth_of_input(*carrier.next) > 0) odd(frame_of(*merge));
  }

  /// The home of each outermost loop, and whether its nodes name other devices as well.
  Status find_homes(std::span<const Node* const> nodes) {
    std::set<int> by_resource;  // loops
    for (const Node* node : nodes) {
      const int frame = loop_of(*node);
      if (frame == 0) continue;
      const auto [home, fresh] = homes_.try_emplace(frames_.outermost(frame), kNone);
      if (fresh) {
        TROUPE_ASSIGN(home->second, wishes_.find(*node));
      }
      if (odd_.contains(frames_.outermost(frame))) {
        whole_[home->first].push_back(node);
        if (!wishes_.by_resources || by_resource.contains(home->first) || !uses_resource(*node)) continue;
        by_resource.insert(home->first);
        TROUPE_ASSIGN(home->second, wishes_.find(*node));
        continue;
      }
      if (!wishes_.names(*node) && serves(*node, home->second) && !stays_with_resource(*node)) continue;
      TROUPE_ASSIGN(const uint32_t named, wishes_.find(*node));
      devices_[static_cast<size_t>(node->id())] = named;
    }
    for (auto& [frame, members] : whole_) TROUPE_RETURN_IF_ERROR(find_home(members, homes_[frame]));
    return {};
  }

  void place() {
    // In topological order, so that what is looked at is placed; but NextIteration's input, which may name a device.
    for (const Node* node : step_.nodes()) {
      if (is_loop_merge(*node) && carriers_.contains(node)) place_carrier(*node);
      const int frame = loop_of(*node);
      if (frame == 0) continue;
      uint32_t& device = devices_[static_cast<size_t>(node->id())];
      const uint32_t home = homes_.at(frames_.outermost(frame));
      if (odd_.contains(frames_.outermost(frame))) {
        device = home;
        continue;
      }
      if (const Node* merge = carried_by(*node)) {
        place_carrier(*merge);  // a NextIteration may come before its Merge, as an Enter does
        device = carriers_[merge].device;
      } else if (device == kNone) {
        device = beside(*node, home);
      }
    }
  }

  std::map<int, LoopPlaces::Shared> shared() const {
    std::map<int, LoopPlaces::Shared> out;
    for (const Node* node : step_.nodes())
      for (int frame = frame_of(*node); frame > 0; frame = frames_.frames[static_cast<size_t>(frame)].parent)
        out[frame].devices.insert(devices_[static_cast<size_t>(node->id())]);
    std::erase_if(out, [](const auto& entry) { return entry.second.devices.size() < 2; });
    for (const auto& [merge, carrier] : carriers_)
      if (const auto at = out.find(frame_of(*merge));
          at != out.end() && (!at->second.enter || carrier.enter->id() < at->second.enter->id()))
        at->second.enter = carrier.enter;
    for (auto& [frame, shared] : out) {
      shared.condition = conditions_[static_cast<size_t>(frame)];
      if (const Node* enter = enter_of_condition(frame)) shared.enter = enter;
    }
    return out;
  }

  std::vector<uint32_t> devices() && { return std::move(devices_); }

 private:
  bool serves(const Node& node, uint32_t device) const { return !wishes_.serves || wishes_.serves(node, device); }
  /// Where its home lacks a kernel: the first device that a member would be on, and that has all.
  Status find_home(const std::vector<const Node*>& members, uint32_t& home) const {
    const auto serves_all = [&](uint32_t device) {
      return std::ranges::all_of(members, [&](const Node* node) { return serves(*node, device); });
    };
    if (!wishes_.serves || serves_all(home)) return {};
    std::set<uint32_t> tried{home};
    for (const Node* node : members) {
      TROUPE_ASSIGN(const uint32_t device, wishes_.find(*node));
      if (!tried.insert(device).second || !serves_all(device)) continue;
      home = device;
      return {};
    }
    return {};
  }
  int frame_of(const Node& node) const { return frames_.of[static_cast<size_t>(node.id())]; }
  int loop_of(const Node& node) const { return std::max(frame_of(node), frames_.of_output(node)); }
  /// The loop around all that `frame` is in stays at home.
  void odd(int frame) { odd_.insert(frames_.outermost(frame)); }

  const Node& input(const Node& node, size_t i) const { return *step_.now(node.inputs()[i]).node; }

  bool is_loop_merge(const Node& node) const {
    if (flow_of(node) != ControlFlow::kMerge) return false;
    for (size_t i = 0; i < node.inputs().size(); ++i)
      if (flow_of(input(node, i)) == ControlFlow::kNextIteration) return true;
    return false;
  }
  /// Of several kinds of devices: a queue's elements, say, are in the memory of the queue's device.
  bool stays_with_resource(const Node& node) const {
    return wishes_.serves && flow_of(node) == ControlFlow::kNone && uses_resource(node);
  }
  bool uses_resource(const Node& node) const {
    return std::ranges::any_of(node.inputs(), [](const Output& in) { return in.dtype() == DType::kResource; });
  }
  void note_carrier(const Node& merge) {
    Carrier carrier;
    for (size_t i = 0; i < merge.inputs().size(); ++i) {
      const Node& in = input(merge, i);
      if (flow_of(in) == ControlFlow::kEnter && !is_constant_enter(in)) carrier.enter = &in;
      if (flow_of(in) == ControlFlow::kNextIteration) carrier.next = &in;
    }
    if (merge.inputs().size() != 2 || !carrier.enter || !merge_of_.emplace(carrier.enter, &merge).second ||
        !merge_of_.emplace(carrier.next, &merge).second)
      return odd(frame_of(merge));
    carriers_.emplace(&merge, carrier);
  }
  /// How many branches that may not have been taken a node is in, within its loop.
  void note_depth(const Node& node) {
    int& depth = depths_[static_cast<size_t>(node.id())];
    const auto count = [&](const Node& before) {
      if (flow_of(before) != ControlFlow::kNextIteration) depth = std::max(depth, depth_of(before));
    };
    for (size_t i = 0; i < node.inputs().size(); ++i)
      if (!step_.is_fed(step_.now(node.inputs()[i]))) count(input(node, i));
    step_.for_each_control(node, [&](const Output& before) { count(*before.node); });
    if (flow_of(node) == ControlFlow::kEnter) {
      int& around = frame_depths_[static_cast<size_t>(frames_.of_output(node))];
      around = std::max(around, depth);
    }
    if (is_loop_merge(node)) depth = 0;
    else if (flow_of(node) == ControlFlow::kMerge) depth = std::max(0, depth - 1);
    if (flow_of(node) == ControlFlow::kSwitch && !is_by_condition(node)) ++depth;
  }
  /// Of the outputs.
  int depth_of(const Node& node) const {
    if (flow_of(node) == ControlFlow::kEnter) return 0;
    if (flow_of(node) == ControlFlow::kExit) return frame_depths_[static_cast<size_t>(frame_of(node))];
    return depths_[static_cast<size_t>(node.id())];
  }
  int depth_of_input(const Node& node) const { return depth_of(input(node, 0)); }
  /// Exits follow the Switches that decide about the next iteration.
  void note_condition(const Node& exit) {
    const Node& branch = input(exit, 0);
    Output& condition = conditions_[static_cast<size_t>(frame_of(exit))];
    if (flow_of(branch) != ControlFlow::kSwitch || branch.inputs().size() != 2) return odd(frame_of(exit));
    const Output by = step_.now(branch.inputs()[1]);
    if (condition && condition != by) odd(frame_of(exit));
    condition = by;
  }
  bool is_by_condition(const Node& node) const {
    const Output& condition = conditions_[static_cast<size_t>(frame_of(node))];
    return condition && node.inputs().size() == 2 && step_.now(node.inputs()[1]) == condition;
  }
  /// The first Enter of a value that the condition is always computed from: where that is dead, the loop does not go
  /// on. nullptr: there is none.
  const Node* enter_of_condition(int frame) const {
    const Node* enter = nullptr;
    std::vector<const Node*> waiting = {conditions_[static_cast<size_t>(frame)].node};
    std::set<const Node*> seen(waiting.begin(), waiting.end());
    while (!waiting.empty()) {
      const Node& node = *waiting.back();
      waiting.pop_back();
      if (frame_of(node) != frame) continue;  // an Enter, or of a loop within this one
      if (flow_of(node) == ControlFlow::kMerge) {
        const auto carried = carriers_.find(&node);
        if (carried != carriers_.end() && (!enter || carried->second.enter->id() < enter->id()))
          enter = carried->second.enter;
        continue;
      }
      for (size_t i = 0; i < node.inputs().size(); ++i)
        if (const Node& in = input(node, i); seen.insert(&in).second) waiting.push_back(&in);
    }
    return enter;
  }
  void check(const Node& node) {
    // Who reads what is there in one iteration only.
    const auto look = [&](const Node& before, bool control) {
      const bool once = (flow_of(before) == ControlFlow::kEnter && !is_constant_enter(before)) ||
                        flow_of(before) == ControlFlow::kNextIteration;
      if ((once && (control || !is_loop_merge(node))) || (is_constant_enter(before) && control))
        odd(frames_.of_output(before));
    };
    for (size_t i = 0; i < node.inputs().size(); ++i)
      if (const Output in = step_.now(node.inputs()[i]); !step_.is_fed(in)) look(*in.node, false);
    step_.for_each_control(node, [&](const Output& before) { look(*before.node, true); });
    if (flow_of(node) == ControlFlow::kExit) {
      const Node& branch = input(node, 0);
      if (flow_of(branch) != ControlFlow::kSwitch || !is_by_condition(branch) || !carriers_.contains(&input(branch, 0)))
        odd(frame_of(node));
    }
    if (flow_of(node) == ControlFlow::kEnter && !is_constant_enter(node) && !merge_of_.contains(&node))
      odd(frames_.of_output(node));
  }

  /// The Merge of the value that `node` carries; nullptr: it does not.
  const Node* carried_by(const Node& node) const {
    if (carriers_.contains(&node)) return &node;
    if (const auto at = merge_of_.find(&node); at != merge_of_.end()) return at->second;
    if (flow_of(node) == ControlFlow::kExit) return carried_by(input(node, 0));
    if (flow_of(node) == ControlFlow::kSwitch && is_by_condition(node) && carriers_.contains(&input(node, 0)))
      return &input(node, 0);
    return nullptr;
  }
  void place_carrier(const Node& merge) {
    Carrier& carrier = carriers_.at(&merge);
    if (carrier.device != kNone) return;
    const auto placed = [&](const Node& node) { return devices_[static_cast<size_t>(node.id())]; };
    const Node& source = input(*carrier.next, 0);
    uint32_t device = placed(merge);
    if (device == kNone) device = placed(source);
    if (device == kNone)
      for (size_t i = 0; i < source.inputs().size() && device == kNone; ++i) {
        const Node& in = input(source, i);
        if (carried_by(in) == &merge || !wishes_.names(in) || loop_of(in) == 0) continue;
        // A list is read and made at the host where GPUs have no kernel for that, whatever is put into it.
        if (const uint32_t there = placed(in); there != kNone && serves(source, there)) device = there;
      }
    if (device == kNone && merge.dtype(0) == DType::kVariant) device = placed(input(*carrier.enter, 0));
    carrier.device = device != kNone ? device : homes_.at(frames_.outermost(frame_of(merge)));
  }
  /// Where a node goes that names no device.
  uint32_t beside(const Node& node, uint32_t home) const {
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      const Node& in = input(node, i);
      const uint32_t there = devices_[static_cast<size_t>(in.id())];
      const bool follows = node.inputs()[i].dtype() == DType::kVariant || node.op().name() == "LoopCond" ||
                           (node.op().name() == "Identity" && carried_by(in));
      if (follows && there != kNone && serves(node, there)) return there;
    }
    return home;
  }

  const StepGraph& step_;
  const Frames& frames_;
  const LoopPlaces::Wishes& wishes_;
  std::vector<int> depths_;                        // by node id
  std::vector<int> frame_depths_;                  // by frame: where it is entered
  std::vector<Output> conditions_;                 // by frame
  std::map<const Node*, Carrier> carriers_;        // by Merge
  std::map<const Node*, const Node*> merge_of_;    // of an Enter or NextIteration
  std::set<int> odd_;                              // outermost loops
  std::map<int, uint32_t> homes_;                  // by outermost loop
  std::map<int, std::vector<const Node*>> whole_;  // the nodes of odd loops
  std::vector<uint32_t> devices_;                  // by node id
};

}  // namespace

Result<LoopPlaces> LoopPlaces::make(const StepGraph& step, const Frames& frames, std::span<const Node* const> nodes,
                                    const Wishes& wishes) {
  LoopPlaces out;
  if (!frames.loops()) return out;
  Finder finder(step, frames, wishes);
  finder.check();
  TROUPE_RETURN_IF_ERROR(finder.find_homes(nodes));
  finder.place();
  out.shared_ = finder.shared();
  out.devices_ = std::move(finder).devices();
  return out;
}

}  // namespace troupe
