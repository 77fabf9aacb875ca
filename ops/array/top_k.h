// SPDX-License-Identifier: Apache-2.0
// The part of the gather family about classes and ranks; called by register_gather_ops.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// OneHot, TopK, TopKV2, InTopK, InTopKV2.
void register_top_k_ops(OpRegistry& ops, KernelRegistry& kernels);

}  // namespace troupe
