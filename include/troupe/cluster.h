// SPDX-License-Identifier: Apache-2.0
// Clusters: one graph over many processes. A client's engine (EngineOptions::cluster) has the devices of all tasks;
// each task is a ClusterWorker. docs/cluster.md says how to start them. Implemented in actors/cluster.cpp.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "troupe/engine.h"
#include "troupe/export.h"

namespace TROUPE_API troupe {

/// A task of a cluster, in a process of its own or in one that does other things too: an engine whose devices,
/// variables and queues clients use. It serves one client at a time, for as long as that is connected, and then waits
/// for another.
class ClusterWorker {
 public:
  /// Listens at the task's address. options.cluster tells the cluster and the task: by its `job` and `task`, or by the
  /// "task" of the JSON (TF_CONFIG). Errors: those of Engine::create; kInvalidArgument for a spec that is none, or no
  /// task of it; check_cluster()'s for the files of TLS; what the system says of the address.
  static Result<std::unique_ptr<ClusterWorker>> start(EngineOptions options);
  /// Says goodbye to all who are connected; their steps that need this task end with an error.
  ~ClusterWorker();
  ClusterWorker(const ClusterWorker&) = delete;

  Engine& engine() const;
  /// "/job:worker/task:1".
  std::string task() const;
  /// "host:port" or "unix:PATH".
  std::string address() const;
  /// What others, a client among them, are connected now: their names.
  std::vector<std::string> connected() const;

  class Impl;
  explicit ClusterWorker(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

/// Whether options are those of a cluster: its spec, its times, the files of TLS and, where `job` is given, the task.
/// Connects to nobody and looks no name up. Errors: kInvalidArgument; kNotFound and kFailedPrecondition name the file
/// of TLS and what is wrong with it.
Status check_cluster(const ClusterOptions& options);

/// What a client sees of a task.
struct TaskStatus {
  std::string task;     // "/job:worker/task:1"
  std::string address;  // "host:port"
  bool up = false;
  bool ready = false;                // and connected to all others that are up
  bool busy = false;                 // not up, but there: it serves another client
  std::string reason;                // where it is not up, or not ready
  int64_t lives = 0;                 // how often it has come since the engine began: anew, or back after a loss
  std::vector<std::string> devices;  // full names; empty while it was never up
};
/// Of an engine with a cluster, its tasks in the order of their names; of others nothing.
std::vector<TaskStatus> cluster_status(const Engine& engine);
/// Has `changed` called whenever a task has come or gone, on a thread of the engine, until what this returns is gone;
/// then it does not run any more. It must not block; it may begin watches and end them, its own too. What it throws is
/// logged and dropped. Of an engine without a cluster: null.
[[nodiscard]] std::shared_ptr<void> watch_cluster(Engine& engine, std::function<void()> changed);
/// What brings tensors from one device to another, as steps of the engine find it: between each two tasks, its own
/// included, the first devices send 4 bytes and then 4 MiB there and back, some times; a way takes half of the least
/// time. By index into Engine::devices(). Some 100 ms for each two tasks, one after the other; blocks. Errors: those of
/// steps.
Result<Links> measure_links(Engine& engine);
/// The tasks of a cluster, asked once: connects as a client does, but takes what is there within `limit`, and does not
/// wait for tasks that are busy. Errors: those of check_cluster().
Result<std::vector<TaskStatus>> probe_cluster(const ClusterOptions& options, std::chrono::nanoseconds limit);

}  // namespace troupe
