// SPDX-License-Identifier: Apache-2.0
// The part of the set family in ops/nn/edit_distance.cpp; register_set_ops calls it.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

void register_edit_distance_ops(OpRegistry& ops, KernelRegistry& kernels);

}  // namespace troupe
