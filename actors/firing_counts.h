// SPDX-License-Identifier: Apache-2.0
// How often nodes run in a step, as a cost model learns it: not all that a plan has, where there are branches and
// loops.
#pragma once
#include "actors/step_state.h"

namespace troupe {

/// Makes `s` count the firings of each node, where a step of its plan may have other numbers than 1.
inline void begin_counting(StepState& s) { s.firings.assign(s.plan->control_flow ? s.plan->size() : 0, 0); }

/// Takes the counts of a step that has ended in: means of the first 20 steps, then the newest counts a twentieth.
inline void take_counts(const StepState& s) {
  constexpr uint32_t kRemembered = 20;
  if (s.firings.empty()) return;
  const PartitionPlan& plan = *s.plan;
  for (uint32_t i = 0; i < plan.size(); ++i) {
    PartitionPlan::Measured& m = plan.measured[i];
    const uint32_t steps = m.steps.load(std::memory_order_relaxed) + 1;
    const float old = m.in_step.load(std::memory_order_relaxed);
    const auto weight = 1 / static_cast<float>(std::min(steps, kRemembered));
    m.in_step.store(old + (static_cast<float>(s.firings[i]) - old) * weight, std::memory_order_relaxed);
    m.steps.store(steps, std::memory_order_release);
  }
}

}  // namespace troupe
