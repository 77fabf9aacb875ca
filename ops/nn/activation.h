// SPDX-License-Identifier: Apache-2.0
// The activation functions of the unary family and the Grad ops; called by register_math_unary_ops.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

/// Relu, Relu6, Elu, Selu, LeakyRelu, Softplus, Softsign, Sigmoid, Tanh, and the Grad ops of these and of Sqrt, Rsqrt
/// and Reciprocal.
void register_activation_ops(OpRegistry& ops, KernelRegistry& kernels);

}  // namespace troupe
