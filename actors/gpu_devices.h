// SPDX-License-Identifier: Apache-2.0
// GpuDevices: the GPUs of one engine: which cards it uses, the devices on them, and the threads that say when their
// work is done. Implemented in actors/gpu_devices.cpp.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "devices/gpu_device.h"
#include "devices/gpu_platform.h"
#include "gpu/collective_runner.h"
#include "troupe/engine.h"

namespace troupe {

class GpuDevices {
 public:
  using Variables = std::map<std::string, Tensor>;

  /// `first`: the number of the first of them among the engine's devices. Errors: as EngineOptions::gpus says.
  static Result<std::unique_ptr<GpuDevices>> make(const GpuOptions& options, const std::string& task);
  ~GpuDevices();

  const GpuPlatform& platform() const { return *platform_; }
  /// They refer to the devices, which live as long as this.
  const std::vector<DeviceInfo>& infos() const { return infos_; }
  /// The device of infos()[i], for its executor; `info` is the engine's copy.
  std::unique_ptr<GpuDevice> device(size_t i, const DeviceInfo& info) const {
    return std::make_unique<GpuDevice>(info, *devices_[i], *staging_);
  }
  /// All that one of infos() has in its memory, copies too.
  AllocatorStats memory(const DeviceInfo& info) const;
  /// What carries out collectives among cards; null: nothing does.
  const std::shared_ptr<gpu::CollectiveRunner>& collectives() const { return collectives_; }
  /// Calls `done` once with all values in the host's memory; by a thread of its own unless they are there. Any thread.
  void bring_to_host(Variables variables, std::function<void(Result<Variables>)> done) const;
  /// Waits until nothing is copied in and nothing is said any more of work that is done. When the actors have ended.
  void stop();

 private:
  GpuDevices() = default;
  Status add_card(const GpuOptions& options, int card, const std::string& task);
  void join_cards(const GpuOptions& options);

  std::shared_ptr<const GpuPlatform> platform_;
  std::vector<std::unique_ptr<gpu::Completions>> completions_;  // by card
  std::shared_ptr<Allocator> pinned_;
  std::unique_ptr<gpu::Staging> staging_ = std::make_unique<gpu::Staging>();  // of all devices
  std::vector<std::unique_ptr<gpu::LogicalDevice>> devices_;
  std::vector<DeviceInfo> infos_;
  std::shared_ptr<gpu::CollectiveRunner> collectives_;
};

}  // namespace troupe
