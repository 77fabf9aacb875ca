// SPDX-License-Identifier: Apache-2.0
#include "devices/gpu_device.h"

#include "devices/run_kernel.h"

namespace troupe {

Result<Ran> GpuDevice::run(const Node&, ComputeKernel* kernel, KernelContext& context, std::span<const Tensor>) {
  if (!kernel) return Ran{.asks = true};
  Status status = run_kernel(*kernel, context);
  gpu_.compute().stream.uses({});  // what comes next is not this kernel's
  TROUPE_RETURN_IF_ERROR(std::move(status));
  return Ran{};
}

Status GpuDevice::copy_out(const Tensor& value, const RequestTag& tag) {
  return gpu_.copy_out(value, [this, tag](Result<Tensor> here) {
    if (here.ok()) answer_({tag, std::vector<Tensor>{std::move(*here)}});
    else answer_({tag, std::move(here.error())});
  });
}

Status GpuDevice::mark(const RequestTag& tag) {
  gpu_.mark([this, tag](Status status) {
    if (status.ok()) answer_({tag, std::vector<Tensor>()});
    else answer_({tag, std::move(status.error())});
  });
  return {};
}

}  // namespace troupe
