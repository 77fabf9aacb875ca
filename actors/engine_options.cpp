// SPDX-License-Identifier: Apache-2.0
#include "actors/engine_options.h"

#include <algorithm>

#include "base/memory_available.h"
#include "base/threads_available.h"

namespace troupe {
namespace {

constexpr int kMostThreads = 1024;
constexpr int kMostCards = 64, kMostOnCard = 64;
constexpr size_t kMostCpuDevices = 1024, kMostSimDevices = 100'000;
/// Workers there are without being asked for: more than cores, so that a few devices have one each also on a small
/// machine; those of many devices take turns.
constexpr int kMostWorkers = 16;
/// Threads beside the workers: that which makes the actor system, the system's clock and printer, and one for what
/// waits for files.
constexpr int kThreadsBeside = 4;

int count_cores() { return std::clamp(count_cores_available(), 1, kMostThreads); }
/// Of the device that has most.
int count_helpers(const EngineOptions& options) { return *std::ranges::max_element(options.cpu_threads) - 1; }

Status check_sim(const SimOptions& sim) {
  if (sim.devices.size() > kMostSimDevices)
    return invalid_argument("simulated devices must be at most {}, got {}", kMostSimDevices, sim.devices.size());
  for (size_t i = 0; i < sim.devices.size(); ++i) {
    const DeviceRates& r = sim.devices[i];
    if (!(r.flops > 0) || !(r.memory_bandwidth > 0) || !(r.launch_ns >= 0) || r.memory < 0)
      return invalid_argument(
          "rates of device sim:{} must be positive, its launch and its memory at least 0, got {} FLOP/s, {} B/s of "
          "memory, launch in {} ns, {} bytes",
          i, r.flops, r.memory_bandwidth, r.launch_ns, r.memory);
  }
  if (!(sim.link.bandwidth > 0) || !(sim.link.latency_ns >= 0))
    return invalid_argument("a link's bandwidth must be positive and its latency at least 0, got {} B/s and {} ns",
                            sim.link.bandwidth, sim.link.latency_ns);
  return {};
}

Status check_gpus(const GpuOptions& gpus) {
  if (gpus.cards < -1 || gpus.cards > kMostCards)
    return invalid_argument("GPUs must be from -1 (all there are) to {}, got {}", kMostCards, gpus.cards);
  if (gpus.devices_per_card < 1 || gpus.devices_per_card > kMostOnCard)
    return invalid_argument("devices on a GPU must be from 1 to {}, got {}", kMostOnCard, gpus.devices_per_card);
  if (!(gpus.memory_fraction > 0) || gpus.memory_fraction > 1)
    return invalid_argument("the part of a GPU's memory must be above 0 and at most 1, got {}", gpus.memory_fraction);
  if (gpus.memory_limit < 0)
    return invalid_argument("the memory limit of GPUs must be at least 0, got {}", gpus.memory_limit);
  if (gpus.collective_timeout.count() <= 0)
    return invalid_argument("the timeout of collectives must be above 0, got {} ns", gpus.collective_timeout.count());
  return {};
}

}  // namespace

void choose_devices(EngineOptions& options) {
  if (options.cpu_threads.empty()) options.cpu_threads = {count_cores()};
}

Status check_options(const EngineOptions& options) {
  if (options.cpu_threads.size() > kMostCpuDevices)
    return invalid_argument("CPU devices must be at most {}, got {}", kMostCpuDevices, options.cpu_threads.size());
  for (size_t i = 0; i < options.cpu_threads.size(); ++i)
    if (options.cpu_threads[i] < 1 || options.cpu_threads[i] > kMostThreads)
      return invalid_argument("threads of device cpu:{} must be from 1 to {}, got {}", i, kMostThreads,
                              options.cpu_threads[i]);
  if (options.memory_limit < 0)
    return invalid_argument("the memory limit must be at least 0, got {}", options.memory_limit);
  if (options.scheduler_threads < 0 || options.scheduler_threads > kMostThreads)
    return invalid_argument("scheduler threads must be from 0 to {}, got {}", kMostThreads, options.scheduler_threads);
  TROUPE_RETURN_IF_ERROR(check_gpus(options.gpus));
  return check_sim(options.sim);
}

int count_workers(const EngineOptions& options) {
  if (options.scheduler_threads > 0) return options.scheduler_threads;
  // One budget of cores: a worker for each device; the helpers of a device's kernels are the rest. Where one device has
  // all the cores, one worker runs everything, so that the helper team is the device's own.
  const int gpus = std::max(options.gpus.cards, 0) * options.gpus.devices_per_card;
  const int count = static_cast<int>(options.cpu_threads.size()) + gpus, cores = count_cores();
  const int wanted = count_helpers(options) > 0 ? count : std::max(count, std::min(2, cores));
  return std::min(wanted, std::max(cores, kMostWorkers));
}

Status check_threads(const EngineOptions& options) {
  prepare_for_exceptions();
  Status there = check_threads_available(count_workers(options) + count_helpers(options) + kThreadsBeside);
  if (!there.ok())
    return make_error(there.error().code, "an engine with these options takes more threads than there are: {}",
                      there.error().message);
  return {};
}

}  // namespace troupe
