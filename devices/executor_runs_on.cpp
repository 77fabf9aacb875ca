// SPDX-License-Identifier: Apache-2.0
// What an executor does for a device that runs on: copies between its memory and the host's, waits for it, and the
// times that it takes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "devices/executor.h"
#include "devices/measurements.h"

namespace troupe {

bool Executor::fire_copy(StepState& s, Ready at, const PlanNode& node) {
  Iteration& in = *s.iterations[at.iteration];
  const Tensor& value = in.values[s.plan->input_slots[node.first_input]];
  const bool there = value.space() == node.space && (node.space == Space::kHost || device_.holds(value));
  if (there || is_object(value.dtype())) {
    in.values[node.first_output] = value;
    return true;
  }
  Status status;
  std::shared_ptr<WorkTimer> timer = timer_for(s);
  if (node.space == Space::kHost) {
    status = device_.copy_out(value, {index_, s.call->id, at.node, at.iteration}, timer.get());
    if (status.ok()) ++s.unanswered;
    if (status.ok() && timer) keep_timer(s, at.node, std::move(timer), 0);
  } else if (device_.copies_in_later(value)) {
    device_.copy_in_later(value, {index_, s.call->id, at.node, at.iteration}, std::move(timer));
    ++s.unanswered;
  } else if (auto copied = device_.copy_in(value, timer.get()); copied.ok()) {
    in.values[node.first_output] = std::move(*copied);
    if (timer) keep_timer(s, at.node, std::move(timer), 0);
    return true;
  } else {
    status = std::move(copied.error());
  }
  if (!status.ok()) fail(s, s.plan->graph_nodes[at.node], std::move(status.error()));
  return false;
}

bool Executor::fire_wait(StepState& s, Ready at) {
  if (Status asked = device_.mark({index_, s.call->id, at.node, at.iteration}); !asked.ok())
    fail(s, s.plan->graph_nodes[at.node], std::move(asked.error()));
  else ++s.unanswered;
  return false;
}

std::shared_ptr<WorkTimer> Executor::timer_for(StepState& s) const {
  if (!s.timing || !device_.traits.runs_on) return nullptr;
  if (s.timers.size() - s.timers_read >= kMostTimers) read_timers(s);
  if (s.timers.size() - s.timers_read >= kMostTimers) return nullptr;
  std::shared_ptr<WorkTimer> timer = device_.timer();
  if (timer) timer->asked_ns = outbox_.now_ns();
  return timer;
}

void Executor::keep_timer(StepState& s, uint32_t node, std::shared_ptr<WorkTimer> timer, double output_bytes) {
  const int64_t asked_ns = timer->asked_ns;
  s.timers.push_back({node, output_bytes, std::move(timer), asked_ns});
}

void Executor::read_timers(StepState& s) {
  for (; s.timers_read < s.timers.size(); ++s.timers_read) {
    TimedNode& node = s.timers[s.timers_read];
    node.ns = node.timer->ns();
    if (!node.ns && s.mark != Mark::kPassed) return;  // it may not be done yet
    if (node.ns) {
      if (!s.first_timer) s.first_timer = node.timer;
      node.after_first_ns = node.timer->ns_after(*s.first_timer);
    }
    node.timer.reset();
  }
}

void Executor::take_times(StepState& s) const {
  read_timers(s);
  s.first_timer.reset();
  for (const TimedNode& node : s.timers)
    if (node.ns) measure(*s.plan, node.node, std::llround(*node.ns), node.output_bytes);
  std::erase_if(s.timers, [](const TimedNode& node) { return !node.after_first_ns; });
  if (s.call->trace && !s.timers.empty()) {
    // Where the device's clock is on the host's: nothing began before it was put in, so the least that fits.
    double first_ns = std::numeric_limits<double>::lowest();
    for (const TimedNode& node : s.timers)
      first_ns = std::max(first_ns, static_cast<double>(node.asked_ns) - *node.after_first_ns);
    std::ranges::stable_sort(s.timers, {}, [](const TimedNode& node) { return *node.after_first_ns; });
    for (const TimedNode& node : s.timers) {
      const PlanNode& of = s.plan->nodes[node.node];
      const auto kind = of.kind != NodeKind::kCopy ? TraceEvent::Kind::kRun
                        : of.space == Space::kHost ? TraceEvent::Kind::kCopyOut
                                                   : TraceEvent::Kind::kCopyIn;
      const int64_t begin = std::llround(first_ns + *node.after_first_ns);
      s.call->trace->add(
          {kind, s.plan->graph_nodes[node.node], index_, s.call->id, begin, begin + std::llround(*node.ns)});
    }
  }
  s.timers.clear();
}

}  // namespace troupe
