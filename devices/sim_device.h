// SPDX-License-Identifier: Apache-2.0
// SimDevice: a device on which time passes by a model. Implemented in devices/sim_device.cpp.
#pragma once
#include <functional>

#include "devices/device.h"

namespace troupe {

class SimDevice final : public Device {
 public:
  struct Model {
    /// Whether kernels compute; else floats of known shapes are zeros.
    bool compute = true;
    /// Nanoseconds that a node takes with its inputs and outputs.
    std::function<double(const Node&, const KernelContext&, std::span<const Tensor> outputs)> cost_ns;
    /// Whether a node that uses a resource takes time of the device for it.
    std::function<bool(const Node&)> takes_part;
    std::function<int64_t()> now_ns;
    std::function<void()> drop_work;
  };
  /// The clock counts in 64 bits.
  static constexpr double kEndOfTime = 9e18;

  SimDevice(const DeviceInfo& info, Model model)
      : Device(info, {.direct = false, .ordered = true, .counts_always = true}), model_(std::move(model)) {}

  /// Errors: those of the kernel; kInvalidArgument where the clock would end first.
  Result<Ran> run(const Node& node, ComputeKernel* kernel, KernelContext& context,
                  std::span<const Tensor> outputs) override;
  void drop_work() override { model_.drop_work(); }

 private:
  const Model model_;
};

}  // namespace troupe
