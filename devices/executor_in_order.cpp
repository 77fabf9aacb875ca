// SPDX-License-Identifier: Apache-2.0
// Loops in an order that the plan has found (FramePlan::order): nothing is counted but the readers of values, a single
// iteration is used again and again, and what it hands on is moved. On one device nothing would run side by side
// anyway.
//
// A loop whose Enters have all come with live values is one thing that is ready: the node that comes next. So expensive
// nodes, turns that are over and lent threads are as everywhere.
#include <algorithm>

#include "base/check.h"
#include "devices/executor.h"
#include "devices/measurements.h"

namespace troupe {
namespace {

/// The slots that node `index` reads.
const uint32_t* inputs_of(const LoopOrder& order, const Iteration& in, uint32_t index) {
  return order.input_slots.data() + order.first_input[index - in.first_node];
}

/// The value of a slot, for one of those that read it.
Tensor read_slot(Iteration& in, uint32_t slot) {
  Tensor value = in.take(slot);
  if (--in.uses[slot] == 0) in.values[slot].reset();
  return value;
}

}  // namespace

bool Executor::goes_in_order(const StepState& s, uint32_t frame) const {
  // A trace shows each node, those of control flow too.
  return !s.plan->frames[frame].order.empty() && device_.traits.direct && !s.ordered && !s.call->trace;
}

void Executor::enter_in_order(StepState& s, uint32_t enter, uint32_t loop, Tensor value) {
  Loop& l = *s.loops[loop];
  const uint32_t iteration = l.iterations.front();
  Iteration& in = *s.iterations[iteration];
  const uint32_t slot = s.plan->nodes[enter].first_output;
  if (in.uses[slot] > 0) in.values[slot] = std::move(value);
  l.entered.push_back(enter);
  if (--l.enters > 0) return;
  const LoopOrder& order = s.plan->frames[l.frame].order;
  std::ranges::copy(order.uses, in.uses);
  merge_in_order(in, order, true);
  push(s, {order.first.all.front(), iteration});
}

void Executor::leave_order(StepState& s, uint32_t loop) {
  Loop& l = *s.loops[loop];
  const uint32_t iteration = l.iterations.front();
  Iteration& in = *s.iterations[iteration];
  l.in_order = in.in_order = false;
  ++in.outstanding;  // so that it does not end on the way
  for (const uint32_t enter : std::exchange(l.entered, {})) {
    const PlanNode& node = s.plan->nodes[enter];
    if (node.enter.every_iteration) l.invariants.push_back({enter, in.values[node.first_output], false});
    tell_successors(s, {enter, 0}, iteration, false, -1);
    if (s.stopped) return;
  }
  settle(s, iteration);
}

int64_t Executor::run_in_order(StepState& s, Ready at, int64_t now, int64_t until, int64_t& fired, Turn turn) {
  Iteration& in = *s.iterations[at.iteration];
  Loop& l = *s.loops[in.loop];
  const LoopOrder& order = s.plan->frames[l.frame].order;
  const auto is_heavy = [&s](uint32_t node) {
    return s.plan->cost_ns[node].load(std::memory_order_relaxed) > PartitionPlan::kHeavyNs;
  };
  --in.outstanding;  // it was ready
  const LoopOrder::Nodes* nodes = &order.nodes(in.number);
  TROUPE_CHECK(nodes->all[l.at] == at.node);
  int until_clock = is_heavy(at.node) ? 1 : kClockEvery;
  for (bool first = true;;) {
    for (const size_t end = l.goes_on ? nodes->all.size() : nodes->inner; l.at < end; ++l.at) {
      const uint32_t node = nodes->all[l.at];
      if (!first) {
        if (--until_clock <= 0) {
          now = outbox_.now_ns();
          until_clock = kClockEvery;
        }
        if (now > until || is_heavy(node) || (turn == Turn::kLent && !is_for_lent_thread(s, node))) {
          push(s, {node, at.iteration});
          return outbox_.now_ns();
        }
      }
      first = false;
      ++fired;
      if (!compute_in_order(s, in, order, node, now)) return outbox_.now_ns();
    }
    if (!l.goes_on) {
      fired += std::ssize(order.merges) + std::ssize(order.switches);
      const auto goes_on = decide_in_order(s, in, order);
      if (goes_on == false) exit_in_order(s, in);
      if (goes_on != true) return outbox_.now_ns();
      l.goes_on = true;
    } else {
      fired += std::ssize(order.nexts);
      hand_on_in_order(*s.plan, in, order);
      nodes = &order.later;
      l.goes_on = false;
      l.at = 0;
    }
  }
}

bool Executor::compute_in_order(StepState& s, Iteration& in, const LoopOrder& order, uint32_t index, int64_t& now) {
  const PartitionPlan& plan = *s.plan;
  const PlanNode& node = plan.nodes[index];
  const uint32_t* const inputs = inputs_of(order, in, index);
  const bool timing = s.timed && s.firings[index] < kTimedFirings;
  if (!s.firings.empty()) ++s.firings[index];
  if (!timing) [[likely]] {
    if (!compute(s, in, node, index, inputs)) return false;
    in.let_go(node, inputs);
    return true;
  }
  const int64_t before = outbox_.now_ns();
  if (!compute(s, in, node, index, inputs)) return false;
  const double bytes = output_bytes(node, in);
  in.let_go(node, inputs);
  now = outbox_.now_ns();
  measure(plan, index, now - before, bytes);
  learn_cost(plan.cost_ns[index], now - before);
  return true;
}

std::optional<bool> Executor::decide_in_order(StepState& s, Iteration& in, const LoopOrder& order) {
  const PartitionPlan& plan = *s.plan;
  // All of them have the same predicate.
  const uint32_t predicate = inputs_of(order, in, order.switches.front())[1];
  auto taken = taken_output(in.values[predicate], 2);
  if (!taken.ok()) {
    fail(s, plan.graph_nodes[order.switches.front()], std::move(taken.error()));
    return {};
  }
  for (const uint32_t index : order.switches) {
    const PlanNode& node = plan.nodes[index];
    const uint32_t* const inputs = inputs_of(order, in, index);
    in.values[node.first_output + static_cast<uint32_t>(*taken)] = in.take(inputs[0]);
    in.let_go(node, inputs);
  }
  return *taken == 1;
}

void Executor::merge_in_order(Iteration& in, const LoopOrder& order, bool first) {
  for (const LoopOrder::Merge& merge : order.merges) {
    Tensor value = read_slot(in, first ? merge.entered : merge.handed_on);
    if (in.uses[merge.merged] > 0) in.values[merge.merged] = std::move(value);
  }
}

void Executor::hand_on_in_order(const PartitionPlan& plan, Iteration& in, const LoopOrder& order) {
  for (const uint32_t next : order.nexts) {
    const PlanNode& node = plan.nodes[next];
    Tensor value = read_slot(in, inputs_of(order, in, next)[0]);
    if (order.uses[node.first_output] > 0) in.values[node.first_output] = std::move(value);
  }
  std::ranges::copy(order.uses, in.uses);
  ++in.number;
  merge_in_order(in, order, false);
}

void Executor::exit_in_order(StepState& s, Iteration& in) {
  const uint32_t loop = in.loop;
  Loop& l = *s.loops[loop];
  l.exited = s.plan->frames[l.frame].exits;
  for (const uint32_t exit : l.exited) {
    deliver(s, exit, l.parent, in.take(s.plan->input_slots[s.plan->nodes[exit].first_input]), false);
    if (s.stopped) return;
  }
  end_loop(s, loop);
}

}  // namespace troupe
