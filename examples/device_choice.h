// SPDX-License-Identifier: Apache-2.0
// An engine with the devices that a command line asks for: --devices cpu|sim|gpu|workers.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "programs/cluster_flags.h"
#include "troupe/engine.h"

struct ChosenDevices {
  std::unique_ptr<troupe::Engine> engine;
  std::vector<std::string> names;  // "/cpu:0", "/cpu:1", ...; full names of workers'
  bool simulated = false, of_workers = false;

  /// Nanoseconds that have passed: of the virtual clock for simulated devices.
  int64_t now_ns() const {
    if (simulated) return engine->sim_now_ns();
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  }
  /// Nanoseconds that each device has run nodes for so far, in the order of `names`; nothing of workers'.
  std::vector<int64_t> busy_ns() const {
    std::vector<int64_t> result;
    if (of_workers) return result;
    for (const troupe::DeviceStats& d : engine->device_stats())
      if ((d.name.find("device:sim:") != std::string::npos) == simulated) result.push_back(d.busy_ns);
    return result;
  }
};

/// The devices of the cluster's tasks, but for those of the job ps, which keep variables for the others.
inline std::vector<std::string> devices_of_workers(const troupe::Engine& engine) {
  std::vector<std::string> result;
  for (const std::string& name : engine.devices())
    if (!name.starts_with("/job:localhost/") && !name.starts_with("/job:ps/")) result.push_back(name);
  return result;
}

/// The first device of each of these: where they keep variables.
inline std::vector<std::string> devices_of_servers(const troupe::Engine& engine) {
  std::vector<std::string> result;
  for (const std::string& name : engine.devices())
    if (name.starts_with("/job:ps/") && name.ends_with("cpu:0")) result.push_back(name);
  return result;
}

/// Whether `count` devices of a kind may be asked for. Errors: kUnimplemented for GPUs, kInvalidArgument for other
/// kinds and for workers without a cluster.
inline troupe::Status check_devices(const std::string& kind, const programs::ClusterFlags& cluster) {
  if (kind == "gpu")
    return troupe::make_error(troupe::Code::kUnimplemented, "this build has no GPU devices; there are cpu and sim");
  if (kind == "workers" && !cluster.given())
    return troupe::invalid_argument("--devices workers: --cluster and TROUPE_CLUSTER name none");
  if (kind != "cpu" && kind != "sim" && kind != "workers")
    return troupe::invalid_argument("no devices of kind '{}'; there are cpu, sim, gpu and workers", kind);
  return {};
}

/// `count` devices of a kind, with one thread each but for workers', in turn where these are fewer. Errors: those of
/// check_devices and Engine::create.
inline troupe::Result<ChosenDevices> choose_devices(const std::string& kind, int count,
                                                    const programs::ClusterFlags& cluster) {
  TROUPE_RETURN_IF_ERROR(check_devices(kind, cluster));
  troupe::EngineOptions options = cluster.engine();
  const auto n = static_cast<size_t>(count);
  options.cpu_threads.assign(kind == "cpu" ? n : 1, 1);
  if (kind == "sim") options.sim.devices.resize(n);
  ChosenDevices chosen;
  TROUPE_ASSIGN(chosen.engine, troupe::Engine::create(std::move(options)));
  chosen.simulated = kind == "sim";
  chosen.of_workers = kind == "workers";
  const auto workers = devices_of_workers(*chosen.engine);
  if (chosen.of_workers && workers.empty())
    return troupe::invalid_argument("--devices workers: no task of the cluster but those of the job ps");
  for (size_t i = 0; i < n; ++i)
    chosen.names.push_back(chosen.of_workers ? workers[i % workers.size()] : fmt::format("/{}:{}", kind, i));
  return chosen;
}
