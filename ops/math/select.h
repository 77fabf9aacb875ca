// SPDX-License-Identifier: Apache-2.0
// The part of the binary family that is not plain arithmetic; called by register_math_binary_ops.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// Select, SelectV2, AddN, ClipByValue, BroadcastTo, BroadcastGradientArgs.
void register_select_ops(OpRegistry& ops, KernelRegistry& kernels);

}  // namespace troupe
