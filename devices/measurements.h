// SPDX-License-Identifier: Apache-2.0
// What a cost model learns from steps: how long nodes take, and how often they run, which is not once where there are
// branches and loops.
#pragma once
#include <algorithm>
#include <atomic>

#include "devices/step_state.h"

namespace troupe {

/// Takes the nth value into a mean of the first 20; from then on the newest counts a twentieth.
inline void take_into(std::atomic<float>& mean, uint32_t nth, double value) {
  constexpr uint32_t kRemembered = 20;
  const float old = mean.load(std::memory_order_relaxed);
  mean.store(old + (static_cast<float>(value) - old) / static_cast<float>(std::min(nth, kRemembered)),
             std::memory_order_relaxed);
}

/// Takes a new measurement in: faster at once, slower (the thread may have been interrupted) by and by.
inline void learn_cost(std::atomic<uint32_t>& cost, int64_t measured_ns) {
  const int64_t old = cost.load(std::memory_order_relaxed);
  const int64_t now = old == 0 || measured_ns < old ? measured_ns : (3 * old + measured_ns) / 4;
  cost.store(static_cast<uint32_t>(std::clamp<int64_t>(now, 1, UINT32_MAX)), std::memory_order_relaxed);
}

/// Of all outputs of a node that has run.
inline double output_bytes(const PlanNode& node, const Iteration& in) {
  double bytes = 0;
  for (uint32_t i = 0; i < node.num_outputs; ++i)
    if (const Tensor& t = in.values[node.first_output + i]; t.defined()) bytes += static_cast<double>(t.bytes());
  return bytes;
}

/// One firing of a node that computes, here or at its resource.
inline void measure(const PartitionPlan& plan, uint32_t node, int64_t ns, double output_bytes) {
  if (plan.nodes[node].kind != NodeKind::kCompute && plan.nodes[node].kind != NodeKind::kResource) return;
  PartitionPlan::Measured& m = plan.measured[node];
  const uint32_t firings = m.firings.load(std::memory_order_relaxed) + 1;
  take_into(m.ns, firings, static_cast<double>(ns));
  take_into(m.bytes, firings, output_bytes);
  m.firings.store(firings, std::memory_order_release);
}

/// Makes `s` count the firings of each node, where a step of its plan may have other numbers than 1.
inline void begin_counting(StepState& s) { s.firings.assign(s.plan->control_flow ? s.plan->size() : 0, 0); }

/// Takes in the counts of a step that has ended.
inline void take_counts(const StepState& s) {
  if (s.firings.empty()) return;
  for (uint32_t i = 0; i < s.plan->size(); ++i) {
    PartitionPlan::Measured& m = s.plan->measured[i];
    const uint32_t steps = m.steps.load(std::memory_order_relaxed) + 1;
    take_into(m.in_step, steps, s.firings[i]);
    m.steps.store(steps, std::memory_order_release);
  }
}

}  // namespace troupe
