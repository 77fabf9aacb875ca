// SPDX-License-Identifier: Apache-2.0
// Calls every function of the list.
#include "ops/quantized/register.h"

namespace troupe {

void register_quantized_ops(OpRegistry& ops, KernelRegistry& kernels) {
  register_fake_quant_ops(ops, kernels);
  register_quantized_image_ops(ops, kernels);
  register_quantized_math_ops(ops, kernels);
  register_quantize_ops(ops, kernels);
  register_quantize_integer_ops(ops, kernels);
  register_requantize_ops(ops, kernels);
  register_quantized_reshape_ops(ops, kernels);
  register_uniform_ops(ops, kernels);
}

}  // namespace troupe
