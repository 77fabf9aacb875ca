// SPDX-License-Identifier: Apache-2.0
#include "devices/step_plan.h"

#include "devices/step_state.h"

namespace troupe {

PartitionPlan::PartitionPlan() = default;
PartitionPlan::PartitionPlan(PartitionPlan&&) noexcept = default;
PartitionPlan::~PartitionPlan() = default;

}  // namespace troupe
