// SPDX-License-Identifier: Apache-2.0
// Where the value of a variable is. Implemented in ops/parts/variable_memory.cpp.
#pragma once
#include "containers/container.h"
#include "gpu/compute.h"
#include "troupe/kernel.h"

namespace troupe {

/// Has a variable be in the memory of the GPU that uses it, where one does (nullptr: the host), and stay there. Nothing
/// is done for a variable without a value. Errors: kResourceExhausted; kFailedPrecondition where it is in the memory of
/// another GPU.
Status bring_to_gpu(Container& container, const ResourceHandle& handle, const gpu::Compute* gpu);

/// The types of variables that may be in a GPU's memory, for the type attribute of that name.
KernelRegistry::Types gpu_variables(const std::string& attr);

}  // namespace troupe
