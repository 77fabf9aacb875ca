// SPDX-License-Identifier: Apache-2.0
// Memory for what kernels put out at the host whatever their device, such as shapes.
#pragma once
#include "troupe/kernel.h"

namespace troupe {

/// Where a kernel gets memory of the host for an output; on a CPU, that of the device.
inline const std::shared_ptr<Allocator>& host_allocator(const KernelContext& c) {
  return c.device().gpu ? system_allocator() : c.device().allocator;
}

}  // namespace troupe
