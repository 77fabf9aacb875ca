// SPDX-License-Identifier: Apache-2.0
// The parts of the array family, each in a file of its own; called by register_array_ops.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

void register_concat_ops(OpRegistry& ops, KernelRegistry& kernels);  // concat.cpp: ConcatV2, Split, Pack, Unpack, ...
void register_slice_ops(OpRegistry& ops, KernelRegistry& kernels);   // slice.cpp: Slice, StridedSlice, Pad

}  // namespace troupe
