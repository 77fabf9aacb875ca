// SPDX-License-Identifier: Apache-2.0
// GpuDevice: a device whose kernels put work into a GPU's stream and return: what comes next on the device is put in
// behind, so nodes fire one after the other without anybody being told that one is done. Only what leaves the device,
// and the end of a step, waits for the GPU. Implemented in devices/gpu_device.cpp.
#pragma once
#include <functional>

#include "devices/device.h"
#include "devices/executor.h"
#include "gpu/logical_device.h"
#include "gpu/staging.h"

namespace troupe {

class GpuDevice final : public Device {
 public:
  /// Hands an answer to the device's executor, from any thread.
  using Answer = std::function<void(ResourceAnswer)>;

  /// From so many bytes on values of the host are copied in by the thread of Staging.
  static constexpr size_t kStagedBytes = size_t{1} << 20;

  /// `gpu` is that of `info`, and lives as long as it, as does `staging`.
  GpuDevice(const DeviceInfo& info, gpu::LogicalDevice& gpu, gpu::Staging& staging)
      : Device(info, {.direct = false, .runs_on = true}), gpu_(gpu), staging_(staging) {}
  /// Before the first step.
  void answer_by(Answer answer) { answer_ = std::move(answer); }

  Result<Ran> run(const Node& node, ComputeKernel* kernel, KernelContext& context,
                  std::span<const Tensor> outputs) override;
  bool holds(const Tensor& value) const override { return gpu_.holds(value); }
  Error reason(Error error) override { return gpu_.reason(std::move(error)); }
  Result<Tensor> copy_in(const Tensor& value, WorkTimer* timer) override;
  bool copies_in_later(const Tensor& value) const override {
    return value.space() == Space::kHost && value.bytes() >= kStagedBytes;
  }
  void copy_in_later(const Tensor& value, const RequestTag& tag, std::shared_ptr<WorkTimer> timer) override;
  Status copy_out(const Tensor& value, const RequestTag& tag, WorkTimer* timer) override;
  Status mark(const RequestTag& tag) override;
  std::shared_ptr<WorkTimer> timer() override;

 private:
  gpu::LogicalDevice& gpu_;
  gpu::Staging& staging_;
  Answer answer_;
};

}  // namespace troupe
