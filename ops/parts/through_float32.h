// SPDX-License-Identifier: Apache-2.0
// Kernels for 16-bit floats made of kernels for float32: inputs are widened, outputs rounded.
#pragma once
#include "troupe/kernel.h"

namespace troupe {

/// Registers CPU kernels of `op` for attribute T of float16 and of bfloat16 that run the ComputeKernel that `float32`
/// makes, as if all 16-bit inputs and outputs of the node were float32. `types` are those of the other attributes.
void add_half_kernels(KernelRegistry& kernels, const std::string& op, const KernelFactory& float32,
                      const KernelRegistry::Types& types = {});

/// The same with a kernel class.
template <class K>
void add_half_kernels(KernelRegistry& kernels, const std::string& op, const KernelRegistry::Types& types = {}) {
  add_half_kernels(kernels, op, KernelFactory::of<K>(), types);
}

}  // namespace troupe
