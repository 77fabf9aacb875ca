// SPDX-License-Identifier: Apache-2.0
// The part of the family of records in ops/input/parse_sequence.cpp; register_parse_example_ops calls it.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

void register_parse_sequence_ops(OpRegistry& ops, KernelRegistry& kernels);

}  // namespace troupe
