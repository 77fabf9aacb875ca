// SPDX-License-Identifier: Apache-2.0
// The parts of the family of windows, each a file of its own. register_pool_ops calls them.
#pragma once
#include "troupe/kernel.h"
#include "troupe/op.h"

namespace troupe {

void register_pool_argmax_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_fractional_pool_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_patches_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_volume_patches_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_conv3d_ops(OpRegistry& ops, KernelRegistry& kernels);
void register_pool3d_ops(OpRegistry& ops, KernelRegistry& kernels);

}  // namespace troupe
