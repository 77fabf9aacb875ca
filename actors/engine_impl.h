// SPDX-License-Identifier: Apache-2.0
// What an Engine owns. The order of members is the order of life: actors end before what they point to.
#pragma once
#include <caf/all.hpp>

#include <atomic>
#include <deque>

#include "actors/directory.h"
#include "actors/executor.h"
#include "troupe/engine.h"

namespace troupe {

class Engine::Impl {
 public:
  explicit Impl(EngineOptions options);
  ~Impl();

  OpRegistry ops;
  KernelRegistry kernels;
  std::vector<DeviceInfo> devices;
  LinkRates link;                           // between devices
  std::shared_ptr<const CostModel> costs;   // measured, or none
  std::deque<Executor::Counters> counters;  // of each device
  std::atomic<int64_t> next_step{1};
  std::atomic<int64_t> sim_clock_ns{0};
  caf::actor_system_config config;
  std::unique_ptr<caf::actor_system> system;
  std::shared_ptr<Directory> directory;
  caf::actor timer;
  caf::actor sim;  // of all simulated devices; invalid without any

  /// The host of a container's variables, made if it is not there.
  caf::actor container(const std::string& name);
};

}  // namespace troupe
