// SPDX-License-Identifier: Apache-2.0
#include "plan/loop_order.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <string_view>

namespace troupe {
namespace {

/// The order of one loop, if it has one.
class OrderFinder {
 public:
  OrderFinder(const PartitionPlan& plan, const FramePlan& frame, std::span<const uint32_t> enters)
      : plan_(plan), frame_(frame), end_(frame.first_node + frame.num_nodes), enters_(enters) {}

  std::optional<LoopOrder> find() {
    if (!look_at_nodes() || !enters_lead_to_merges() || !sort()) return {};
    if (out_.merges.empty() || out_.switches.empty() || out_.first.all.empty()) return {};
    leave_out_identities();
    find_later();
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
      if (node.kind == NodeKind::kCompute) (in_next ? inner : out_.first.all).push_back(i);
      bool fits = true;
      for_each_edge(i, [&](uint32_t to, int port) {
        if (node.kind == NodeKind::kSwitch && port == 0 && plan_.nodes[to].kind != NodeKind::kExit) fits = false;
        if (in_next || (node.kind == NodeKind::kSwitch && port == 1)) is_inner[local(to)] = true;
        if (--waits_for[local(to)] == 0) ready.push_back(to);
      });
      if (!fits) return false;
    }
    out_.first.inner = static_cast<uint32_t>(out_.first.all.size());
    out_.first.all.insert(out_.first.all.end(), inner.begin(), inner.end());
    return ready.size() == frame_.num_nodes;
  }

  bool hands_on(uint32_t i) const {
    static constexpr std::string_view kOps[] = {"Identity", "PreventGradient", "Snapshot", "StopGradient"};
    const Node* const node = plan_.graph_nodes[i];
    return node && std::ranges::find(kOps, node->op().name()) != std::end(kOps) && !plan_.nodes[i].compute->checked;
  }

  void leave_out_identities() {
    const int32_t* const uses = frame_.counts.data() + frame_.num_nodes;
    out_.uses.assign(uses, uses + frame_.num_slots);
    std::vector<uint32_t> stands_for(frame_.num_slots);  // of each slot, the one to read in its place
    std::iota(stands_for.begin(), stands_for.end(), 0);
    out_.first_input.resize(frame_.num_nodes);
    const auto take_inputs = [&](uint32_t i) {
      out_.first_input[i - frame_.first_node] = static_cast<uint32_t>(out_.input_slots.size());
      for (uint32_t k = 0; k < plan_.nodes[i].num_inputs; ++k)
        out_.input_slots.push_back(stands_for[input(plan_.nodes[i], k)]);
    };
    const auto stays = [&](uint32_t i, bool must) {
      take_inputs(i);
      const uint32_t output = plan_.nodes[i].first_output;
      if (must || !hands_on(i) || out_.uses[output] == 0) return true;
      stands_for[output] = out_.input_slots.back();
      out_.uses[stands_for[output]] += out_.uses[output] - 1;
      return false;
    };
    out_.first = without_others(out_.first, stays);
    for (uint32_t i = frame_.first_node; i < end_; ++i)
      if (plan_.nodes[i].kind != NodeKind::kCompute) take_inputs(i);
  }

  /// What follows from constants and from what is the same in every iteration is computed in the first one, as far as
  /// it is not large. Of its slots those that are read again keep their values; what only led to them need not stay.
  void find_later() {
    std::vector<bool> stays(frame_.num_slots);
    std::fill(stays.begin() + frame_.num_values, stays.end(), true);
    int64_t bytes = 0;
    out_.later = without_others(out_.first, [&](uint32_t i, bool must) {
      const PlanNode& node = plan_.nodes[i];
      const auto inputs = inputs_of(i);
      const bool same = std::ranges::all_of(inputs, [&](uint32_t slot) { return stays[slot]; });
      const int64_t size = same ? size_if_steady(i) : -1;
      if (must || size < 0 || bytes + size > kMostKept) return true;
      bytes += size;
      for (uint32_t slot = node.first_output; slot < node.first_output + node.num_outputs; ++slot) stays[slot] = true;
      return false;
    });
    for (const auto* readers : {&out_.later.all, &out_.switches, &out_.nexts})
      for (const uint32_t i : *readers)
        for (const uint32_t slot : inputs_of(i))
          if (stays[slot] && out_.uses[slot] < kKeptUses) out_.uses[slot] += kKeptUses;
  }

  /// The slots that a node reads in this order.
  std::span<const uint32_t> inputs_of(uint32_t i) const {
    return std::span(out_.input_slots).subspan(out_.first_input[i - frame_.first_node], plan_.nodes[i].num_inputs);
  }

  static constexpr int64_t kMostKept = int64_t{64} << 20;  // bytes
  /// The bytes that a node puts out, if they are known and follow from its inputs alone; else -1. What has none draws
  /// from elsewhere: it is not merged either.
  int64_t size_if_steady(uint32_t i) const {
    const Node* const node = plan_.graph_nodes[i];
    if (!node || node->op().is_stateful() || node->inputs().empty()) return -1;
    int64_t bytes = 0;
    for (int port = 0; port < node->num_outputs(); ++port) {
      const PartialShape& shape = node->shape(port);
      if (!shape.fully_known() || shape.shape().elements() > kMostKept || is_object(node->dtype(port))) return -1;
      bytes += shape.shape().elements() * static_cast<int64_t>(size_of(node->dtype(port)));
    }
    return bytes;
  }

  /// The nodes that stays(node, must) is true of; one of them must, for an order begins with one.
  template <class F> static LoopOrder::Nodes without_others(const LoopOrder::Nodes& nodes, F&& stays) {
    LoopOrder::Nodes out;
    for (uint32_t at = 0; at < nodes.all.size(); ++at) {
      if (!stays(nodes.all[at], out.all.empty() && at + 1 == nodes.all.size())) continue;
      out.all.push_back(nodes.all[at]);
      out.inner += at < nodes.inner;
    }
    return out;
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
