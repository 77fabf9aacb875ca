// SPDX-License-Identifier: Apache-2.0
#include "actors/gpu_devices.h"

#include <mutex>

#include "actors/cuda_platform.h"
#include "base/log.h"
#include "gpu/pinned_memory.h"

namespace troupe {
namespace {

/// What a launch takes of the host's time, about.
constexpr double kLaunchNs = 3000;

/// Gathers the copies of many values, which come in any order.
class Gathering {
 public:
  using Variables = GpuDevices::Variables;
  Gathering(Variables variables, std::function<void(Result<Variables>)> done)
      : variables_(std::move(variables)), done_(std::move(done)) {}

  /// One more is to come, or none is to be asked for any more.
  void await() {
    const std::lock_guard lock(mutex_);
    ++left_;
  }
  void came(const std::string& name, const std::string& device, Result<Tensor> value) {
    std::unique_lock lock(mutex_);
    if (value.ok()) {
      variables_[name] = std::move(*value);
    } else if (error_.ok()) {
      Error error = make_error(value.error().code, "variable '{}': {}", name, value.error().message);
      error.device = device;
      error_ = std::move(error);
    }
    finish(lock);
  }
  void asked_for_all() {
    std::unique_lock lock(mutex_);
    finish(lock);
  }

 private:
  void finish(std::unique_lock<std::mutex>& lock) {
    if (--left_ > 0) return;
    lock.unlock();
    if (error_.ok()) done_(std::move(variables_));
    else done_(std::move(error_.error()));
  }

  std::mutex mutex_;
  Variables variables_;
  Status error_;
  int left_ = 1;
  const std::function<void(Result<Variables>)> done_;
};

}  // namespace

Result<std::unique_ptr<GpuDevices>> GpuDevices::make(const GpuOptions& options, const std::string& task) {
  std::unique_ptr<GpuDevices> out(new GpuDevices);
  out->platform_ = options.platform;
  if (!out->platform_) {
    auto cuda = make_cuda_platform();
    if (!cuda.ok() && options.cards < 0) {
      log_info("no GPUs: {}", cuda.error().message);
      return std::unique_ptr<GpuDevices>();
    }
    TROUPE_ASSIGN(out->platform_, std::move(cuda));
  }
  gpu::Runtime& runtime = *out->platform_->runtime;
  const int there = static_cast<int>(runtime.cards().size());
  if (options.cards > there)
    return make_error(Code::kUnavailable, "{} GPUs are asked for, and there {} {}", options.cards,
                      there == 1 ? "is" : "are", there);
  const int count = options.cards < 0 ? there : options.cards;
  for (int card = 0; card < count; ++card)
    for (int peer = 0; peer < count; ++peer)
      if (peer != card) TROUPE_RETURN_IF_ERROR(runtime.connect(card, peer).status());
  out->pinned_ = gpu::make_pinned_allocator(out->platform_->runtime);
  for (int card = 0; card < count; ++card) TROUPE_RETURN_IF_ERROR(out->add_card(options, card, task));
  std::vector<gpu::LogicalDevice*> all;
  for (const auto& device : out->devices_) all.push_back(device.get());
  for (gpu::LogicalDevice* device : all) device->know(all);
  if (count > 1) out->join_cards(options);
  return out;
}

Status GpuDevices::add_card(const GpuOptions& options, int number, const std::string& task) {
  const gpu::Card& card = platform_->runtime->cards()[static_cast<size_t>(number)];
  completions_.push_back(
      std::make_unique<gpu::Completions>(platform_->runtime, gpu::CompletionsOptions{.card = number}));
  int64_t memory =
      static_cast<int64_t>(static_cast<double>(card.memory) * options.memory_fraction) / options.devices_per_card;
  if (options.memory_limit > 0) memory = std::min(memory, options.memory_limit);
  if (memory < gpu::kLeastDeviceMemory)
    return invalid_argument(
        "GpuOptions: {} bytes for each device of card {} ({} bytes; memory_fraction {}, {} devices a card, "
        "memory_limit "
        "{}), which needs at least {}",
        memory, number, card.memory, options.memory_fraction, options.devices_per_card, options.memory_limit,
        gpu::kLeastDeviceMemory);
  for (int i = 0; i < options.devices_per_card; ++i) {
    std::shared_ptr<gpu::Blas> blas;
    if (platform_->make_blas) {
      TROUPE_ASSIGN(blas, platform_->make_blas(number));
    }
    std::shared_ptr<gpu::Dnn> dnn;
    if (platform_->make_dnn) {
      TROUPE_ASSIGN(dnn, platform_->make_dnn(number));
    }
    TROUPE_ASSIGN(auto device,
                  gpu::LogicalDevice::make(platform_->runtime, {.card = number, .memory = memory, .tf32 = options.tf32},
                                           std::move(blas), std::move(dnn), pinned_, *completions_.back()));
    const auto share = static_cast<double>(options.devices_per_card);
    infos_.push_back({.name = fmt::format("{}/device:gpu:{}", task, infos_.size()),
                      .kind = DeviceKind::kCuda,
                      .threads = 1,
                      .allocator = device->compute().allocator,
                      .rates = {.flops = card.flops / share,
                                .memory_bandwidth = card.memory_bandwidth / share,
                                .launch_ns = kLaunchNs,
                                .memory = memory},
                      .gpu = &device->compute()});
    devices_.push_back(std::move(device));
  }
  return {};
}

AllocatorStats GpuDevices::memory(const DeviceInfo& info) const {
  const auto at = std::ranges::find_if(devices_, [&](const auto& device) { return &device->compute() == info.gpu; });
  return (*at)->memory();
}

void GpuDevices::join_cards(const GpuOptions& options) {
  Result<std::shared_ptr<gpu::Collectives>> library = make_error(Code::kUnavailable, "a library for them is missing");
  if (platform_->make_collectives) library = platform_->make_collectives();
  if (!library.ok()) return log_info("collectives of several GPUs take rings: {}", library.error().message);
  std::vector<gpu::CollectiveRunner::Member> members;
  for (size_t i = 0; i < devices_.size(); ++i) members.push_back({infos_[i].name, devices_[i].get()});
  const auto patience = std::min<std::chrono::nanoseconds>(options.collective_timeout, std::chrono::seconds(5));
  collectives_ = std::make_shared<gpu::CollectiveRunner>(
      platform_->runtime, std::move(*library), std::move(members),
      gpu::CollectiveRunnerOptions{.timeout = options.collective_timeout, .patience = patience});
}

GpuDevices::~GpuDevices() { stop(); }

void GpuDevices::stop() {
  if (collectives_) collectives_->stop();
  staging_.reset();  // it still has copies watched
  completions_.clear();
}

void GpuDevices::bring_to_host(Variables variables, std::function<void(Result<Variables>)> done) const {
  std::vector<std::pair<std::string, Tensor>> there;
  for (const auto& [name, value] : variables)
    if (value.space() == Space::kGpu) there.emplace_back(name, value);
  if (there.empty()) return done(std::move(variables));
  const auto gathering = std::make_shared<Gathering>(std::move(variables), std::move(done));
  for (const auto& [name, value] : there) {
    gathering->await();
    const auto at =
        std::ranges::find_if(devices_, [&value = value](const auto& device) { return device->holds(value); });
    const std::string device = at == devices_.end() ? "" : infos_[static_cast<size_t>(at - devices_.begin())].name;
    Status asked = make_error(Code::kInternal, "is in the memory of no device");
    if (at != devices_.end())
      asked = (*at)->copy_out(value, [gathering, name = name, device](Result<Tensor> here) {
        gathering->came(name, device, std::move(here));
      });
    if (!asked.ok()) gathering->came(name, device, std::move(asked.error()));
  }
  gathering->asked_for_all();
}

}  // namespace troupe
