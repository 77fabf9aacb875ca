// SPDX-License-Identifier: Apache-2.0
#include "devices/gpu_device.h"

#include "devices/run_kernel.h"

namespace troupe {

Result<Ran> GpuDevice::run(const Node& node, ComputeKernel* kernel, KernelContext& context,
                           std::span<const Tensor> outputs) {
  if (!kernel) return Ran{.asks = true};
  accesses_.clear();
  const auto uses = [&](const Tensor& t, bool writes) {
    if (t.space() == Space::kGpu && t.bytes() > 0) accesses_.push_back({t.address(), t.bytes(), writes});
  };
  for (int i = 0; i < context.num_inputs(); ++i) uses(context.input(i), false);
  const size_t read = accesses_.size();
  TROUPE_RETURN_IF_ERROR(run_kernel(*kernel, context));
  const auto is_input = [&](const void* at) {
    return std::any_of(accesses_.begin(), accesses_.begin() + static_cast<ptrdiff_t>(read),
                       [at](const gpu::Access& a) { return a.at == at; });
  };
  // What shares an input's memory may be that input, handed on.
  for (const Tensor& t : outputs)
    if (!is_input(t.address())) uses(t, true);
  gpu_.compute().stream.used(accesses_);
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
