// SPDX-License-Identifier: Apache-2.0
// The one list of lists: each folder of ops is a family, whose own list is its register.h.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

namespace gpu {
class CollectiveRunner;  // gpu/collective_runner.h
}

/// Registers every op and kernel of Troupe.
void register_all_ops(OpRegistry& ops, KernelRegistry& kernels);
/// Those by which `runner` carries collectives out, of an engine that has one.
void register_card_collectives(OpRegistry& ops, KernelRegistry& kernels,
                               const std::shared_ptr<gpu::CollectiveRunner>& runner);

}  // namespace troupe
