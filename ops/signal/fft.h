// SPDX-License-Identifier: Apache-2.0
// The part of the complex family in ops/signal/fft.cpp; register_complex_ops calls it.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

void register_fft_ops(OpRegistry& ops, KernelRegistry& kernels);

}  // namespace troupe
