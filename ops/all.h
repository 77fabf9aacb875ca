// SPDX-License-Identifier: Apache-2.0
// The one list of lists: each folder of ops is a family, whose own list is its register.h.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// Registers every op and kernel of Troupe.
void register_all_ops(OpRegistry& ops, KernelRegistry& kernels);

}  // namespace troupe
