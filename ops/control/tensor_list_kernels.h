// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "troupe/kernel.h"

namespace troupe {

/// CPU kernels of TensorList... and of AddN on lists.
void register_tensor_list_kernels(KernelRegistry& kernels);

}  // namespace troupe
