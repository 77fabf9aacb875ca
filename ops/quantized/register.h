// SPDX-License-Identifier: Apache-2.0
// Integers that stand for the numbers of a range.
// The list of the files here that register ops: one function for each, of its name.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// Registers all of them, by calling each of those below.
void register_quantized_ops(OpRegistry& ops, KernelRegistry& kernels);

void register_fake_quant_ops(OpRegistry&, KernelRegistry&);
void register_quantized_image_ops(OpRegistry&, KernelRegistry&);
void register_quantized_math_ops(OpRegistry&, KernelRegistry&);
void register_quantize_ops(OpRegistry&, KernelRegistry&);
void register_quantize_integer_ops(OpRegistry&, KernelRegistry&);
void register_requantize_ops(OpRegistry&, KernelRegistry&);
void register_quantized_reshape_ops(OpRegistry&, KernelRegistry&);
void register_uniform_ops(OpRegistry&, KernelRegistry&);

}  // namespace troupe
