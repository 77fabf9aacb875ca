// SPDX-License-Identifier: Apache-2.0
// Branches and loops of the Executor: dead tensors, frames and their iterations (white paper, 4.4; the semantics are
// TensorFlow's).
//
//  1. Every node of the step's own frame completes once, live or dead. In a loop, an iteration ends when nothing of
//     it is ready, waits for an answer or is a loop under way, and the iteration before it has ended.
//  2. A loop ends with its newest iteration, once all its Enter nodes have come. A NextIteration makes a new one before
//     its own iteration can end; it waits where `parallel` iterations are alive.
//  3. A node with a dead input is dead: it does not run, and its outputs are dead. A Merge is dead when all its
//     inputs are that can come: those of Enters in the first iteration, those of NextIterations in the others.
//  4. A dead NextIteration makes no iteration, but is dead in one that another has made: so the nodes of an iteration
//     complete even if a value that the loop was entered with is dead.
//  5. An Exit lives in one iteration at most. One that did not is dead when the loop ends.
#include <algorithm>

#include "base/check.h"
#include "devices/executor.h"

namespace troupe {
namespace {

constexpr int32_t kDeadMerge = INT32_MAX;

}  // namespace

Result<int> Executor::taken_output(const Tensor& by, int outputs) {
  if (by.elements() != 1) return invalid_argument("the predicate must be a scalar, got {}", by.str());
  if (by.dtype() == DType::kBool) return by.data<bool>()[0] ? 1 : 0;
  if (by.dtype() != DType::kInt32) return invalid_argument("the index of a branch must be an int32, got {}", by.str());
  const int32_t index = by.data<int32_t>()[0];
  return index >= 0 && index < outputs ? index : outputs - 1;
}

void Executor::fire_control(StepState& s, Ready at) {
  const PlanNode& node = s.plan->nodes[at.node];
  Iteration& in = *s.iterations[at.iteration];
  const int32_t mark = in.dead[at.node - in.first_node];
  const bool dead = node.kind == NodeKind::kMerge ? mark == kDeadMerge : mark > 0;
  const uint32_t* inputs = s.plan->input_slots.data() + node.first_input;
  switch (node.kind) {
    case NodeKind::kSwitch: {
      if (dead) return complete_control(s, at, true);
      auto taken = taken_output(in.values[inputs[1]], node.num_outputs);
      if (!taken.ok()) return fail(s, s.plan->graph_nodes[at.node], std::move(taken.error()));
      in.values[node.first_output + static_cast<uint32_t>(*taken)] = in.take(inputs[0]);
      return complete_control(s, at, false, *taken);
    }
    case NodeKind::kMerge: {
      if (dead) return complete_control(s, at, true);
      int32_t live = 0;
      while (!in.values[inputs[live]].defined()) ++live;  // it fires when one has come
      in.values[node.first_output] = in.take(inputs[live]);
      if (in.uses[node.first_output + 1] > 0) in.values[node.first_output + 1] = Tensor::scalar(live);
      return complete_control(s, at, false);
    }
    case NodeKind::kAlive: {
      const Tensor& x = in.values[inputs[0]];
      auto value = dead ? Tensor::zeros(node.alive_dtype, Shape{0}) : Result<Tensor>(x);
      if (!value.ok()) return fail(s, s.plan->graph_nodes[at.node], std::move(value.error()));
      in.values[node.first_output] = std::move(*value);
      in.values[node.first_output + 1] = Tensor::scalar(!dead);
      return complete_control(s, at, false);
    }
    case NodeKind::kEnter: return enter(s, at, dead);
    case NodeKind::kExit: return exit(s, at);
    case NodeKind::kNextIteration: return next_iteration(s, at);
    case NodeKind::kSend: send(s, at, node, Tensor(), dead); return complete_control(s, at, dead);
    default: return complete_control(s, at, dead);
  }
}

void Executor::complete_control(StepState& s, Ready at, bool dead, int taken, AtOnce at_once) {
  const PlanNode& node = s.plan->nodes[at.node];
  Iteration& in = *s.iterations[at.iteration];
  const uint32_t* inputs = s.plan->input_slots.data() + node.first_input;
  for (uint32_t i = 0; i < node.num_inputs; ++i)
    if (--in.uses[inputs[i]] == 0) in.values[inputs[i]].reset();
  if (node.kind < NodeKind::kEnter || node.kind >= NodeKind::kTrigger) {  // the others have delivered their output
    for (uint32_t i = 0; i < node.num_outputs; ++i)
      if (in.uses[node.first_output + i] == 0) in.values[node.first_output + i].reset();
    tell_successors(s, at, at.iteration, dead, taken, at_once);
  }
  if (at.iteration == 0) --s.left;
  else settle(s, at.iteration);
}

void Executor::tell_successors(StepState& s, Ready at, uint32_t iteration, bool dead, int taken, AtOnce at_once) {
  const PartitionPlan& plan = *s.plan;
  Iteration& in = *s.iterations[iteration];
  const PlanNode* const nodes = plan.nodes.data();
  const uint32_t end = nodes[at.node + 1].first_successor;
  for (uint32_t i = nodes[at.node].first_successor; i < end; ++i) {
    const uint32_t to = plan.successors[i];
    const int port = plan.successor_ports[i];
    const bool dies = dead || (taken >= 0 && port >= 0 && port != taken);
    const NodeKind kind = nodes[to].kind;
    if (kind == NodeKind::kMerge) {
      if (!arrive_at_merge(s, {to, iteration}, port < 0, dies)) continue;
      if (at_once == AtOnce::kNone) {
        push(s, {to, iteration});
        continue;
      }
    } else {
      const uint32_t local = to - in.first_node;
      if (dies && kind != NodeKind::kTrigger) in.dead[local] = 1;
      if (--in.pending[local] > 0) continue;
      if (in.dead[local]) {
        die(s, {to, iteration});
        continue;
      }
      if (at_once != AtOnce::kControl || (kind != NodeKind::kSwitch && kind != NodeKind::kNextIteration)) {
        push(s, {to, iteration});
        continue;
      }
    }
    ++fired_at_once_;
    if (iteration > 0) ++in.outstanding;
    if (kind == NodeKind::kNextIteration) next_iteration(s, {to, iteration}, AtOnce::kMerges);
    else fire_control(s, {to, iteration});
    if (s.stopped) return;
  }
}

void Executor::die(StepState& s, Ready at) {
  // What every iteration but the last does with its exits, and the last with its way back, should cost little.
  const NodeKind kind = s.plan->nodes[at.node].kind;
  if (kind == NodeKind::kExit) return;
  if (kind != NodeKind::kNextIteration) return push(s, at);
  Loop& l = *s.loops[s.iterations[at.iteration]->loop];
  if (l.iterations.back() == at.iteration) l.dead_nexts.push_back(at.node);
  else deliver(s, at.node, iteration_after(s, at.iteration), Tensor(), true);
}

bool Executor::arrive_at_merge(StepState& s, Ready at, bool control, bool dead) {
  const PlanNode& node = s.plan->nodes[at.node];
  Iteration& in = *s.iterations[at.iteration];
  int32_t& pending = in.pending[at.node - in.first_node];
  int32_t& mark = in.dead[at.node - in.first_node];
  const int32_t can_come = node.num_inputs - (in.number == 0 ? node.merge.nexts : node.merge.enters);
  // The lowest bit says that no live input has come, the others count control inputs.
  if (control) {
    pending -= 2;
  } else if (dead) {
    if (++mark < can_come) return false;
  } else if (pending & 1) {
    pending -= 1;
  } else {  // another was first: TensorFlow's gradients of branches have constants that always live beside what may
    return false;
  }
  const bool all_dead = pending == 1 && mark >= can_come;
  if (pending != 0 && !all_dead) return false;
  mark = all_dead ? kDeadMerge : 0;
  return true;
}

// -- loops ------------------------------------------------------------------------------------------------------------

void Executor::deliver(StepState& s, uint32_t node, uint32_t iteration, Tensor value, bool dead, AtOnce at_once) {
  Iteration& in = *s.iterations[iteration];
  const uint32_t slot = s.plan->nodes[node].first_output;
  if (!dead && in.uses[slot] > 0) in.values[slot] = std::move(value);
  tell_successors(s, {node, 0}, iteration, dead, -1, at_once);
}

void Executor::enter(StepState& s, Ready at, bool dead) {
  const PlanNode& node = s.plan->nodes[at.node];
  Iteration& in = *s.iterations[at.iteration];
  const uint32_t frame = node.enter.frame;
  const auto child = in.child(frame);
  uint32_t loop;
  if (child != in.children.end() && child->frame == frame) {
    loop = child->loop;
  } else {
    if (s.spare_loops.empty()) {
      s.spare_loops.push_back(static_cast<uint32_t>(s.loops.size()));
      s.loops.push_back(std::make_unique<Loop>());
    }
    loop = s.spare_loops.back();
    s.spare_loops.pop_back();
    s.loops[loop]->serial = ++s.loops_entered;
    s.loops[loop]->frame = frame;
    s.loops[loop]->parent = at.iteration;
    s.loops[loop]->enters = s.plan->frames[frame].enters;
    s.loops[loop]->in_order = goes_in_order(s, frame);
    in.children.insert(child, {frame, loop});
    ++(at.iteration == 0 ? s.left : in.outstanding);
    add_iteration(s, loop);
  }
  Loop& l = *s.loops[loop];
  Tensor value = dead ? Tensor() : in.take(s.plan->input_slots[node.first_input]);
  if (l.in_order) {
    if (!dead) {
      enter_in_order(s, at.node, loop, std::move(value));
      return complete_control(s, at, false);
    }
    leave_order(s, loop);
    if (s.stopped) return;
  }
  const uint32_t first = l.iterations.front();
  ++s.iterations[first]->outstanding;  // so that it does not end on the way
  if (node.enter.every_iteration) {
    l.invariants.push_back({at.node, value, dead});
    for (uint32_t iteration : l.iterations) {
      deliver(s, at.node, iteration, value, dead);
      if (s.stopped) return;
    }
  } else {
    deliver(s, at.node, first, std::move(value), dead);
    if (s.stopped) return;
  }
  --l.enters;
  settle(s, first);
  complete_control(s, at, dead);
}

void Executor::exit(StepState& s, Ready at) {
  const PlanNode& node = s.plan->nodes[at.node];
  Iteration& in = *s.iterations[at.iteration];
  Loop& l = *s.loops[in.loop];
  if (std::ranges::find(l.exited, at.node) != l.exited.end())
    return fail(s, s.plan->graph_nodes[at.node], invalid_argument("it is live in two iterations of its loop"));
  l.exited.push_back(at.node);
  deliver(s, at.node, l.parent, in.take(s.plan->input_slots[node.first_input]), false);
  if (!s.stopped) complete_control(s, at, false);
}

void Executor::next_iteration(StepState& s, Ready at, AtOnce at_once) {
  Loop& l = *s.loops[s.iterations[at.iteration]->loop];
  Tensor value = s.iterations[at.iteration]->take(s.plan->input_slots[s.plan->nodes[at.node].first_input]);
  const bool newest = l.iterations.back() == at.iteration;
  if (newest && l.iterations.size() >= s.plan->frames[l.frame].parallel) {
    l.next.push_back({at.node, std::move(value)});
    return complete_control(s, at, false);
  }
  if (newest) add_iteration(s, s.iterations[at.iteration]->loop);
  if (s.stopped) return;
  deliver(s, at.node, newest ? l.iterations.back() : iteration_after(s, at.iteration), std::move(value), false,
          at_once);
  if (!s.stopped) complete_control(s, at, false);
}

uint32_t Executor::iteration_after(const StepState& s, uint32_t iteration) {
  const std::deque<uint32_t>& alive = s.loops[s.iterations[iteration]->loop]->iterations;
  return *(std::ranges::find(alive, iteration) + 1);
}

void Executor::add_iteration(StepState& s, uint32_t loop) {
  Loop& l = *s.loops[loop];
  const PartitionPlan& plan = *s.plan;
  const FramePlan& frame = plan.frames[l.frame];
  std::vector<uint32_t>& spare = s.spare_iterations[l.frame];
  if (spare.empty()) {
    spare.push_back(static_cast<uint32_t>(s.iterations.size()));
    s.iterations.push_back(std::make_unique<Iteration>());
    s.iterations.back()->make_room(frame);
  }
  const uint32_t index = spare.back();
  spare.pop_back();
  Iteration& in = *s.iterations[index];
  in.first_node = frame.first_node;
  in.begin(frame);
  in.children.clear();
  in.frame = l.frame;
  in.loop = loop;
  in.number = l.begun++;
  in.outstanding = frame.num_recvs;
  in.in_order = l.in_order;
  l.iterations.push_back(index);
  const std::vector<uint32_t> dead = std::exchange(l.dead_nexts, {});
  if (in.serial != l.serial) in.clear_invariants(frame);
  in.serial = l.serial;
  for (const Loop::Value& v : l.invariants) {
    Tensor& held = in.values[plan.nodes[v.node].first_output];
    if (!v.dead && !held.defined()) held = v.tensor;
    tell_successors(s, {v.node, 0}, index, v.dead, -1);
    if (s.stopped) return;
  }
  for (const uint32_t next : dead) {
    deliver(s, next, index, Tensor(), true);
    if (s.stopped) return;
  }
  if (frame.num_recvs == 0 || s.early.empty()) return;
  if (auto early = s.early.extract({l.frame, path_of(s, index)}); !early.empty())
    for (ReadyTensor& tensor : early.mapped()) receive_in_loop(s, std::move(tensor));
}

// -- loops on several devices -----------------------------------------------------------------------------------------

std::vector<uint32_t> Executor::path_of(const StepState& s, uint32_t iteration) {
  std::vector<uint32_t> path;
  for (; iteration > 0; iteration = s.loops[s.iterations[iteration]->loop]->parent)
    path.push_back(s.iterations[iteration]->number);
  std::ranges::reverse(path);
  return path;
}

std::optional<uint32_t> Executor::find_iteration(const StepState& s, uint32_t frame, std::span<const uint32_t> path) {
  if (path.empty()) return 0;
  const auto parent = find_iteration(s, s.plan->frames[frame].parent, path.first(path.size() - 1));
  if (!parent) return {};
  Iteration& around = *s.iterations[*parent];
  if (const auto child = around.child(frame); child != around.children.end() && child->frame == frame) {
    const Loop& l = *s.loops[child->loop];
    const uint32_t after_first = path.back() - s.iterations[l.iterations.front()]->number;
    if (after_first < l.iterations.size()) return l.iterations[after_first];
  }
  return {};
}

void Executor::receive_in_loop(StepState& s, ReadyTensor tensor) {
  const auto& frames = s.plan->frames;
  const auto after = std::ranges::upper_bound(frames, tensor.node, {}, &FramePlan::first_node);
  const auto frame = static_cast<uint32_t>(after - frames.begin() - 1);
  const auto iteration = find_iteration(s, frame, tensor.iterations);
  if (!iteration) {
    s.early[{frame, tensor.iterations}].push_back(std::move(tensor));
    return;
  }
  if (!put(s, *iteration, std::move(tensor))) return;
  --s.iterations[*iteration]->outstanding;  // it waited for this one; the Recv counts now
}

void Executor::end_iterations(StepState& s, uint32_t loop) {
  Loop& l = *s.loops[loop];
  while (!s.stopped && l.enters == 0 && s.iterations[l.iterations.front()]->outstanding == 0) {
    const uint32_t oldest = l.iterations.front();
    if (l.iterations.size() == 1 && l.next.empty()) return end_loop(s, loop);
    l.iterations.pop_front();
    s.iterations[oldest]->clear(s.plan->frames[l.frame]);
    s.spare_iterations[l.frame].push_back(oldest);
    if (l.next.empty()) continue;
    std::vector<Loop::Value> waiting = std::exchange(l.next, {});
    add_iteration(s, loop);
    const uint32_t newest = l.iterations.back();
    for (Loop::Value& v : waiting)
      if (!s.stopped) deliver(s, v.node, newest, std::move(v.tensor), v.dead);
  }
}

void Executor::end_loop(StepState& s, uint32_t loop) {
  Loop& l = *s.loops[loop];
  const uint32_t last = l.iterations.front();
  s.iterations[last]->clear(s.plan->frames[l.frame]);
  s.spare_iterations[l.frame].push_back(last);
  for (uint32_t spare : s.spare_iterations[l.frame])
    if (s.iterations[spare]->serial == l.serial) s.iterations[spare]->clear_invariants(s.plan->frames[l.frame]);
  const uint32_t parent = l.parent, frame = l.frame;
  const std::vector<uint32_t>& exits = s.plan->frames[l.frame].exits;
  for (const uint32_t exit : exits) {
    if (l.exited.size() == exits.size()) break;
    if (std::ranges::find(l.exited, exit) != l.exited.end()) continue;
    deliver(s, exit, parent, Tensor(), true);
    if (s.stopped) return;
  }
  l = Loop();
  s.spare_loops.push_back(loop);
  Iteration& around = *s.iterations[parent];
  around.children.erase(around.child(frame));
  if (parent == 0) --s.left;
  else settle(s, parent);
}

}  // namespace troupe
