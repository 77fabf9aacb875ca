// SPDX-License-Identifier: Apache-2.0
// How a step begins on a device, fails, stops and ends. What happens in between: executor.cpp.
#include <algorithm>

#include "base/check.h"
#include "devices/executor.h"
#include "devices/live_tensors.h"
#include "devices/measurements.h"

namespace troupe {
namespace {

/// How often a step times every node of its own.
constexpr int64_t kTimedEvery = 64;

}  // namespace

Error dead_fetch(const Output& fetch, int64_t step) {
  Error error = invalid_argument("{} is dead: the branch that makes it was not taken", fetch.name());
  error.op = fetch.node->op().name();
  error.node = fetch.node->name();
  error.step = step;
  return error;
}

void Executor::start(StepRef call) {
  const auto& partitions = call->plan->partitions;
  auto plan = std::ranges::find(partitions, index_, &PartitionPlan::device);
  TROUPE_CHECK(plan != partitions.end());
  if (call->failed()) {
    early_.erase(call->id);
    call->partition_done();
    return;
  }
  const int64_t id = call->id;
  StepState& s = activate(make_state(std::move(call), *plan));
  for (uint32_t root : plan->roots) push(s, {root, 0});
  if (auto early = early_.find(id); early != early_.end()) {
    std::vector<ReadyTensor> tensors = std::move(early->second);
    early_.erase(early);
    for (ReadyTensor& t : tensors) receive(s, std::move(t));
  }
}

void Executor::abort(const StepRef& call) {
  early_.erase(call->id);
  if (StepState* s = find(call->id)) stop(*s);
}

void Executor::fail(StepState& s, const Node* node, Error error) {
  if (device_.traits.runs_on) error = device_.reason(std::move(error));
  if (node) {
    if (error.node.empty()) error.node = node->name();
    if (error.op.empty()) error.op = node->op().name();
  }
  if (error.device.empty()) error.device = info_.name;
  error.step = s.call->id;
  if (error.code == Code::kResourceExhausted) {
    const AllocatorStats memory = info_.allocator->stats();  // it may be the disk that is full
    if (std::exchange(refusals_, memory.failures) < memory.failures) {
      unpark();
      std::vector<std::unique_ptr<StepState>> steps(std::move_iterator(active_.begin()),
                                                    std::move_iterator(active_.end()));
      error.message += "; " + describe_live_tensors(steps, memory);
      std::ranges::move(steps, active_.begin());
    }
  }
  if (s.call->fail(std::move(error))) outbox_.abort_elsewhere(s.call);
  stop(s);
}

void Executor::waited_for(const StepState& s, uint32_t node) const {
  if (const Node* at = s.plan->graph_nodes[node]) s.call->waited_for(at->op().name(), at->name(), info_.name);
}

void Executor::stop(StepState& s) {
  if (s.stopped) return;
  s.stopped = true;
  s.ready.clear();
  s.heavy.clear();
  if (!s.blocking.empty()) waited_for(s, s.blocking.front());
  if (work_ && work_->step == s.call->id) {
    counters_.busy_ns.fetch_add(outbox_.now_ns() - work_->begin_ns, std::memory_order_relaxed);
    work_.reset();
    --s.unanswered;
    device_.drop_work();
  }
  if (s.unanswered > 0) {
    flush();  // what is to be cancelled must be on its way first
    outbox_.cancel_uses(s.call->id);
  }
}

void Executor::hand_out(StepState& s, uint32_t fetch, Tensor value, bool dead) {
  if (dead) return fail(s, nullptr, s.call->sink->dead(fetch));
  value.freeze();
  s.call->sink->fetched(fetch, std::move(value));
}

std::unique_ptr<StepState> Executor::make_state(StepRef call, const PartitionPlan& plan) {
  std::unique_ptr<StepState> s;
  if (plan.spare.empty()) {
    s = std::make_unique<StepState>();
    s->iterations.push_back(std::make_unique<Iteration>());
    s->iterations[0]->make_room(plan.frames[0]);
    s->spare_iterations.resize(plan.frames.size());
  } else {
    s = std::move(plan.spare.back());
    plan.spare.pop_back();
  }
  const FramePlan& frame = plan.frames[0];
  Iteration& in = *s->iterations[0];
  in.begin(frame);
  s->plan = &plan;
  s->left = frame.num_nodes;
  s->unanswered = s->input_unanswered = 0;
  s->blocking.clear();
  s->stopped = s->held = false;
  s->mark = Mark::kNotAsked;
  s->passed_over = 0;
  s->has_run_by.reset();
  s->checked.clear();
  s->timers.clear();
  s->timers_read = 0;
  s->first_timer.reset();
  s->ordered = !plan.priorities.empty() || device_.traits.ordered;
  // Two looks at the clock for a node would show in small steps, so only some are timed; the very first only warms.
  const int64_t nth = plan.started++;
  const bool measured = nth > 0 && (nth <= plan.timed_steps || nth % kTimedEvery == 0);
  s->timed = measured || call->trace;
  s->timing = s->timed;
  s->firings.clear();
  if (s->timed || device_.traits.counts_always) begin_counting(*s);
  for (auto [feed, slot] : plan.feeds) in.values[slot] = call->feeds[feed];
  s->call = std::move(call);
  return s;
}

bool Executor::has_run(StepState& s) {
  if (s.mark != Mark::kNotAsked) return s.mark == Mark::kPassed;
  if (Status asked = device_.mark({index_, s.call->id, kMark, 0}); !asked.ok()) {
    fail(s, nullptr, std::move(asked.error()));
    return true;
  }
  s.mark = Mark::kAsked;
  ++s.unanswered;
  return false;
}

bool Executor::finish_if_done(StepState& s) {
  if (s.stopped ? s.unanswered > 0 : s.left > 0) return false;
  if (device_.traits.runs_on && !s.stopped && !has_run(s)) return false;
  if (!s.stopped && !s.timers.empty()) take_times(s);
  const auto at = std::ranges::lower_bound(active_, s.call->id, {}, [](const auto& a) { return a->call->id; });
  std::unique_ptr<StepState> state = std::move(*at);
  active_.erase(at);
  StepRef call = std::move(state->call);
  const PartitionPlan& plan = *state->plan;
  Iteration& in = *state->iterations[0];
  if (!state->stopped) {
    take_counts(*state);
    for (auto [slot, fetch] : plan.fetches) {
      Tensor& value = in.values[slot];
      if (!value.defined()) call->fail(dead_fetch(call->plan->fetches[fetch], call->id));
      if (--in.uses[slot] == 0) call->fetches[fetch] = std::move(value);
      else call->fetches[fetch] = value;
    }
    for (auto [feed, slot] : plan.feeds) in.values[slot] = Tensor();
  }
  constexpr size_t kSpare = 8;
  if (!state->stopped && plan.spare.size() < kSpare) plan.spare.push_back(std::move(state));
  state.reset();
  counters_.steps.fetch_add(1, std::memory_order_relaxed);
  flush();
  call->partition_done();
  return true;
}

}  // namespace troupe
