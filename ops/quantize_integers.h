// SPDX-License-Identifier: Apache-2.0
// The part of the quantize family in ops/quantize_integers.cpp; register_quantize_ops calls it.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

void register_quantize_integer_ops(OpRegistry& ops, KernelRegistry& kernels);

}  // namespace troupe
