// SPDX-License-Identifier: Apache-2.0
// The ops of all families: each folder of ops is one, whose own list is its register.h. make_op_library, in all.cpp, is
// the list of these lists.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

namespace gpu {
class CollectiveRunner;  // gpu/collective_runner.h
}

/// Registers the ops and kernels by which `runner` carries collectives out, of an engine that has one.
void register_card_collectives(OpRegistry& ops, KernelRegistry& kernels,
                               const std::shared_ptr<gpu::CollectiveRunner>& runner);

}  // namespace troupe
