// SPDX-License-Identifier: Apache-2.0
#include "plan/loop_order.h"

#include <span>

namespace troupe {
namespace {

/// The order of one loop, if it has one.
class OrderFinder {
 public:
  OrderFinder(const PartitionPlan& plan, const FramePlan& frame, std::span<const uint32_t> enters)
      : plan_(plan), frame_(frame), end_(frame.first_node + frame.num_nodes), enters_(enters) {}

  std::optional<LoopOrder> find() {
    if (!look_at_nodes() || !enters_lead_to_merges() || !sort()) return {};
    if (out_.merges.empty() || out_.switches.empty() || out_.nodes.empty()) return {};
    return std::move(out_);
  }

 private:
  uint32_t input(const PlanNode& node, uint32_t i) const { return plan_.input_slots[node.first_input + i]; }
  int32_t dependencies(uint32_t node) const { return frame_.counts[node - frame_.first_node]; }
  int32_t readers(uint32_t slot) const { return frame_.counts[frame_.num_nodes + slot]; }
  std::span<const uint32_t> successors(uint32_t node) const {
    const uint32_t begin = plan_.nodes[node].first_successor;
    return std::span(plan_.successors).subspan(begin, plan_.nodes[node + 1].first_successor - begin);
  }
  bool lead_to_merges(uint32_t node) const {
    return std::ranges::all_of(successors(node),
                               [this](uint32_t to) { return plan_.nodes[to].kind == NodeKind::kMerge; });
  }

  /// Whether each is of a kind that fits, and has inputs that do.
  bool look_at_nodes() {
    std::optional<uint32_t> predicate;
    std::vector<bool> is_next(frame_.num_slots), left(frame_.num_slots);  // by slot
    for (uint32_t i = frame_.first_node; i < end_; ++i) {
      const PlanNode& node = plan_.nodes[i];
      if (node.kind == NodeKind::kNextIteration) is_next[node.first_output] = true;
      if (node.kind == NodeKind::kSwitch) left[node.first_output] = true;
    }
    for (uint32_t i = frame_.first_node; i < end_; ++i) {
      const PlanNode& node = plan_.nodes[i];
      switch (node.kind) {
        case NodeKind::kNoOp:
        case NodeKind::kCompute: break;
        case NodeKind::kMerge: {
          const bool waits_for_one = dependencies(i) == 1 && node.num_inputs == 2;
          if (!waits_for_one || node.merge.enters != 1 || node.merge.nexts != 1) return false;
          if (readers(node.first_output + 1) > 0) return false;
          uint32_t entered = input(node, 0), handed_on = input(node, 1);
          if (is_next[entered]) std::swap(entered, handed_on);
          if (is_next[entered] || !is_next[handed_on]) return false;
          out_.merges.push_back({node.first_output, entered, handed_on});
          break;
        }
        case NodeKind::kSwitch:
          if (node.num_outputs != 2 || predicate.value_or(input(node, 1)) != input(node, 1)) return false;
          predicate = input(node, 1);
          out_.switches.push_back(i);
          break;
        case NodeKind::kExit:
          if (dependencies(i) != 1 || !left[input(node, 0)]) return false;
          break;
        case NodeKind::kNextIteration:
          if (!lead_to_merges(i)) return false;
          out_.nexts.push_back(i);
          break;
        default: return false;
      }
    }
    return true;
  }

  bool enters_lead_to_merges() const {
    return std::ranges::all_of(
        enters_, [this](uint32_t i) { return plan_.nodes[i].enter.every_iteration || lead_to_merges(i); });
  }

  /// What runs in every iteration comes first, then what runs only if another one comes.
  bool sort() {
    const auto local = [this](uint32_t node) { return node - frame_.first_node; };
    std::vector<uint32_t> waits_for(frame_.num_nodes), ready, inner;
    std::vector<bool> is_inner(frame_.num_nodes);
    // Merges wait for none, in whose place the iteration begins with them.
    const auto for_each_edge = [&](uint32_t node, auto&& f) {
      if (plan_.nodes[node].kind == NodeKind::kNextIteration || plan_.nodes[node].kind == NodeKind::kExit) return;
      const std::span<const uint32_t> to = successors(node);
      for (size_t i = 0; i < to.size(); ++i) f(to[i], plan_.successor_ports[plan_.nodes[node].first_successor + i]);
    };
    for (uint32_t i = frame_.first_node; i < end_; ++i)
      for_each_edge(i, [&](uint32_t to, int) { ++waits_for[local(to)]; });
    for (uint32_t i = frame_.first_node; i < end_; ++i)
      if (waits_for[local(i)] == 0) ready.push_back(i);
    for (size_t next = 0; next < ready.size(); ++next) {
      const uint32_t i = ready[next];
      const PlanNode& node = plan_.nodes[i];
      const bool in_next = is_inner[local(i)];
      if (node.kind == NodeKind::kSwitch && in_next) return false;
      if (node.kind == NodeKind::kNextIteration && !in_next) return false;  // it would go on for ever
      if (node.kind == NodeKind::kCompute) (in_next ? inner : out_.nodes).push_back(i);
      bool fits = true;
      for_each_edge(i, [&](uint32_t to, int port) {
        if (node.kind == NodeKind::kSwitch && port == 0 && plan_.nodes[to].kind != NodeKind::kExit) fits = false;
        if (in_next || (node.kind == NodeKind::kSwitch && port == 1)) is_inner[local(to)] = true;
        if (--waits_for[local(to)] == 0) ready.push_back(to);
      });
      if (!fits) return false;
    }
    out_.inner = static_cast<uint32_t>(out_.nodes.size());
    out_.nodes.insert(out_.nodes.end(), inner.begin(), inner.end());
    return ready.size() == frame_.num_nodes;
  }

  const PartitionPlan& plan_;
  const FramePlan& frame_;
  const uint32_t end_;
  const std::span<const uint32_t> enters_;
  LoopOrder out_;
};

}  // namespace

std::vector<bool> frames_that_wait(const StepGraph& step, const Frames& frames) {
  // Behind the nodes, one for each frame: it waits for the frame's Enters, and the Exits wait for it.
  const auto ids = static_cast<size_t>(step.ids());
  std::vector<std::vector<size_t>> after(ids + frames.frames.size());
  std::vector<uint32_t> waits_for(after.size());
  std::vector<bool> out(frames.frames.size());
  const auto add = [&](size_t from, size_t to) {
    after[from].push_back(to);
    ++waits_for[to];
  };
  for (const Node* node : step.nodes()) {
    const auto id = static_cast<size_t>(node->id());
    for (const Output& written : node->inputs()) {
      const Output in = step.now(written);
      if (step.is_fed(in) || flow_of(*in.node) == ControlFlow::kNextIteration) continue;
      add(static_cast<size_t>(in.node->id()), id);
    }
    step.for_each_control(*node, [&](const Output& before) { add(static_cast<size_t>(before.node->id()), id); });
    if (flow_of(*node) == ControlFlow::kEnter) add(id, ids + static_cast<size_t>(frames.of_output(*node)));
    if (flow_of(*node) == ControlFlow::kExit) add(ids + static_cast<size_t>(frames.of[id]), id);
  }
  std::vector<size_t> ready;
  for (size_t i = 0; i < after.size(); ++i)
    if (waits_for[i] == 0) ready.push_back(i);
  while (!ready.empty()) {
    const size_t i = ready.back();
    ready.pop_back();
    if (i >= ids) out[i - ids] = true;
    for (const size_t to : after[i])
      if (--waits_for[to] == 0) ready.push_back(to);
  }
  return out;
}

void order_loops(StepPlan& plan, const StepGraph& step, const Frames& frames) {
  if (!frames.loops()) return;
  std::optional<std::vector<bool>> wait;  // a walk over the graph: only where it is asked for
  for (PartitionPlan& part : plan.partitions) {
    std::vector<std::vector<uint32_t>> enters(part.frames.size());
    for (uint32_t i = 0; i < part.size(); ++i)
      if (part.nodes[i].kind == NodeKind::kEnter) enters[part.nodes[i].enter.frame].push_back(i);
    for (size_t f = 1; f < part.frames.size(); ++f) {
      auto order = OrderFinder(part, part.frames[f], enters[f]).find();
      if (!order) continue;
      if (!wait) wait = frames_that_wait(step, frames);
      if ((*wait)[f]) part.frames[f].order = std::move(*order);
    }
  }
}

}  // namespace troupe
