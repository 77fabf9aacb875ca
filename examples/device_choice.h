// SPDX-License-Identifier: Apache-2.0
// An engine with the devices that a command line asks for: --devices cpu|sim|gpu.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "troupe/engine.h"

struct ChosenDevices {
  std::unique_ptr<troupe::Engine> engine;
  std::vector<std::string> names;  // "/cpu:0", "/cpu:1", ...
  bool simulated = false;

  /// Nanoseconds that have passed: of the virtual clock for simulated devices.
  int64_t now_ns() const {
    if (simulated) return engine->sim_now_ns();
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  }
  /// Nanoseconds that each device has run nodes for so far, in the order of `names`.
  std::vector<int64_t> busy_ns() const {
    std::vector<int64_t> result;
    for (const troupe::DeviceStats& d : engine->device_stats())
      if ((d.name.find("device:sim:") != std::string::npos) == simulated) result.push_back(d.busy_ns);
    return result;
  }
};

/// `count` devices of a kind, one thread each. Errors: kUnimplemented for GPUs, kInvalidArgument for other kinds.
inline troupe::Result<ChosenDevices> choose_devices(const std::string& kind, int count) {
  troupe::EngineOptions options;
  const auto n = static_cast<size_t>(count);
  if (kind == "cpu") options.cpu_threads.assign(n, 1);
  else if (kind == "sim") options.sim.devices.resize(n), options.cpu_threads = {1};
  else if (kind == "gpu")
    return troupe::make_error(troupe::Code::kUnimplemented, "this build has no GPU devices; there are cpu and sim");
  else return troupe::invalid_argument("no devices of kind '{}'; there are cpu, sim and gpu", kind);
  ChosenDevices chosen;
  TROUPE_ASSIGN(chosen.engine, troupe::Engine::create(std::move(options)));
  for (int i = 0; i < count; ++i) chosen.names.push_back(fmt::format("/{}:{}", kind, i));
  chosen.simulated = kind == "sim";
  return chosen;
}
