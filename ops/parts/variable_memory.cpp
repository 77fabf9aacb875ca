// SPDX-License-Identifier: Apache-2.0
#include "ops/parts/variable_memory.h"

namespace troupe {

KernelRegistry::Types gpu_variables(const std::string& attr) {
  return {{attr,
           {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16, DType::kInt32, DType::kInt64,
            DType::kInt8, DType::kUInt8, DType::kInt16, DType::kBool}}};
}

Status bring_to_gpu(Container& container, const ResourceHandle& handle, const gpu::Compute* gpu) {
  if (!gpu) return {};
  return container.move(handle, [&](const Tensor& value) -> Result<Tensor> {
    if (value.space() == Space::kHost) return gpu->upload(value);
    if (!gpu->holds(value))
      return make_error(Code::kFailedPrecondition, "variable '{}' is in the memory of another GPU", handle.name);
    return value;
  });
}

}  // namespace troupe
