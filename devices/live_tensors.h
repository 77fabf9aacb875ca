// SPDX-License-Identifier: Apache-2.0
// What the steps of a device hold in its memory, in words: for who runs out of it.
#pragma once
#include <span>

#include "devices/step_state.h"

namespace troupe {

/// "3000 bytes in use, limit 4000; of 2 live tensors in 1 step (2400 bytes) the largest: 'a:0' float32[300] 1200 bytes
/// (step 7), ...": up to eight outputs of nodes that `steps` keep, the largest first, a buffer that several share once.
/// Left out is what is in memory of others: feeds, constants, what was received. What is in use beyond that is kept by
/// variables, queues, callers, or devices that received it.
std::string describe_live_tensors(std::span<const std::unique_ptr<StepState>> steps, const AllocatorStats& memory);

}  // namespace troupe
