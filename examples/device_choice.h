// SPDX-License-Identifier: Apache-2.0
// An engine with the devices that a command line asks for: --devices cpu|sim|gpu|workers.
#pragma once
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "programs/cluster_flags.h"
#include "troupe/engine.h"

struct ChosenDevices {
  std::unique_ptr<troupe::Engine> engine;
  std::vector<std::string> names;  // "/cpu:0", "/cpu:1", ...; full names of workers'
  bool simulated = false, of_workers = false, gpus = false;

  /// Of sessions: what has no kernel on GPUs runs on the CPU.
  bool soft_placement() const { return gpus; }
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
    const char* kind = simulated ? "device:sim:" : gpus ? "device:gpu:" : "device:cpu:";
    for (const troupe::DeviceStats& d : engine->device_stats())
      if (d.name.find(kind) != std::string::npos) result.push_back(d.busy_ns);
    return result;
  }
};

/// The GPUs of this process.
inline std::vector<std::string> gpus_of(const troupe::Engine& engine) {
  std::vector<std::string> result;
  for (const std::string& name : engine.devices())
    if (name.starts_with("/job:localhost/") && name.find("device:gpu:") != std::string::npos) result.push_back(name);
  return result;
}

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

/// Whether devices of a kind may be asked for. Error: kInvalidArgument for other kinds than there are, and for workers
/// without a cluster.
inline troupe::Status check_devices(const std::string& kind, const programs::ClusterFlags& cluster) {
  if (kind == "workers" && !cluster.given())
    return troupe::invalid_argument("--devices workers: --cluster and TROUPE_CLUSTER name none");
  if (kind != "cpu" && kind != "sim" && kind != "gpu" && kind != "workers")
    return troupe::invalid_argument("no devices of kind '{}'; there are cpu, sim, gpu and workers", kind);
  return {};
}

/// An engine with `count` GPUs at least; where there are fewer cards, each is several, with a part of its memory.
/// Error: kUnavailable where there is none, with the reason.
inline troupe::Result<std::unique_ptr<troupe::Engine>> engine_with_gpus(const troupe::EngineOptions& options,
                                                                        int count) {
  troupe::EngineOptions with = options;
  with.gpus.cards = 1;
  if (count > 1) {
    troupe::EngineOptions all = options;
    all.gpus.cards = -1;
    TROUPE_ASSIGN(auto engine, troupe::Engine::create(all));
    const auto cards = static_cast<int>(gpus_of(*engine).size());
    if (cards >= count) return engine;
    with.gpus.cards = std::max(cards, 1);
    with.gpus.devices_per_card = (count + with.gpus.cards - 1) / with.gpus.cards;
  }
  return troupe::Engine::create(with);
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
  chosen.gpus = kind == "gpu";
  TROUPE_ASSIGN(chosen.engine,
                chosen.gpus ? engine_with_gpus(options, count) : troupe::Engine::create(std::move(options)));
  cluster.forget_former_client(*chosen.engine);
  chosen.simulated = kind == "sim";
  chosen.of_workers = kind == "workers";
  const auto workers = devices_of_workers(*chosen.engine);
  if (chosen.of_workers && workers.empty())
    return troupe::invalid_argument("--devices workers: no task of the cluster but those of the job ps");
  for (size_t i = 0; i < n; ++i)
    chosen.names.push_back(chosen.of_workers ? workers[i % workers.size()] : fmt::format("/{}:{}", kind, i));
  return chosen;
}
