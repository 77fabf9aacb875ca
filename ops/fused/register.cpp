// SPDX-License-Identifier: Apache-2.0
// Calls every function of the list.
#include "ops/fused/register.h"

namespace troupe {

void register_fused_ops(OpRegistry& ops, KernelRegistry& kernels) {
  register_fused_elementwise_ops(ops, kernels);
  register_fused_product_ops(ops, kernels);
  register_product_gradient_ops(ops, kernels);
  register_blocked_image_ops(ops, kernels);
  register_pointwise_depthwise_ops(ops, kernels);
  register_fused_transformer_ops(ops, kernels);
}

}  // namespace troupe
