// SPDX-License-Identifier: Apache-2.0
// What an Engine owns. Sessions share it, so that it outlives the engine as far as their plans need it: registries and
// memory; the actors end with the engine.
#pragma once
#include <caf/all.hpp>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

#include "actors/blocking_jobs.h"
#include "actors/cluster_view.h"
#include "actors/directory.h"
#include "actors/gpu_devices.h"
#include "actors/worker.h"
#include "devices/blocking_pool.h"
#include "devices/executor.h"
#include "devices/team_leader.h"
#include "troupe/engine.h"

namespace troupe {

class Network;

/// A task of a cluster besides the engine's own.
struct RemoteTask {
  std::string name;                 // "/job:worker/replica:0/task:1"
  std::vector<DeviceInfo> devices;  // without allocators
  std::shared_ptr<TaskLink> link;
};

class Engine::Impl : public std::enable_shared_from_this<Engine::Impl> {
 public:
  static constexpr std::string_view kAlone = "/job:localhost/replica:0/task:0";
  /// The actors are in a system of the engine's own, or in `host`, which outlives it. `task`: its own, of a cluster.
  /// Errors: those of Engine::create.
  static Result<std::shared_ptr<Impl>> make(EngineOptions options, caf::actor_system* host,
                                            std::string_view task = kAlone);
  /// How values go to the worker of another task; see Worker::Host.
  using Send = std::function<bool(const std::string& task, EdgeValue)>;
  /// From now on the engine's worker has a way to others. Once, before the first step.
  void connect(Send send) { send_ = std::move(send); }
  /// Devices that wait because a Send said so go on. Any thread.
  void may_send();
  /// From now on sessions are of the client of that number, and may use the devices of these tasks, behind the engine's
  /// own. Once, before the first session.
  void join(uint64_t client, std::vector<RemoteTask> tasks);
  ~Impl();

  /// Cancels the steps that run, waits until their callers were answered, and ends the actors. Once.
  void shut_down();

  /// Why no call can succeed, if so: the engine has gone, or has stayed behind in the parent of this process.
  Status status() const;
  bool usable() const { return status().ok(); }
  /// The second of these: no thread answers in this process.
  Status in_child() const;
  /// Whether the calling thread is at work for this engine: then it must not wait for it.
  bool on_own_thread() const;
  /// The same, as the error of the call `what`; `instead` is what to call.
  Status check_thread(std::string_view what, std::string_view instead) const;
  /// check_thread() of an engine that is there.
  Status may_wait(std::string_view what, std::string_view instead) const;
  /// An error if an actor that the plan needs has died.
  Status check_alive(const StepPlan& plan) const;

  /// Calls a user's callback: marks the thread, and logs what it throws.
  template <class F, class... Args> void call(F& callback, Args&&... args) const {
    called([&] { callback(std::forward<Args>(args)...); });
  }
  /// The host of a container's variables, made if it is not there.
  Result<caf::actor> container(const std::string& name);
  caf::actor_system& system() const { return *system_; }
  /// Spawns an actor that shut_down() waits for; ending it is the caller's.
  caf::actor adopt(const std::function<caf::actor()>& spawn);

  OpRegistry ops;
  KernelRegistry kernels;
  std::string task;                  // "/job:localhost/replica:0/task:0"
  std::unique_ptr<GpuDevices> gpus;  // none: there are none
  std::vector<DeviceInfo> devices;
  std::vector<std::unique_ptr<Device>> working_devices;  // but the simulated ones, which are last
  std::vector<DeviceInfo> all_devices;                   // those of other tasks last
  std::deque<Executor::Counters> counters;               // of each device
  std::deque<TeamLeader> leaders;                        // of each device
  Links links;                                           // between all_devices, as placement takes them
  uint64_t scatter = 0;                                  // see ClusterOptions
  std::atomic<int64_t> next_step{1};
  std::atomic<int64_t> sim_clock_ns{0};
  std::shared_ptr<BlockingPool> pool = std::make_shared<BlockingPool>();
  std::shared_ptr<Directory> directory;
  std::shared_ptr<TaskDatasets> datasets;  // of a cluster's task
  std::shared_ptr<Worker> worker;          // of the parts of steps that other tasks, or this one, ask for
  std::shared_ptr<ClusterView> cluster;    // none: it is alone
  std::shared_ptr<Network> network;        // of a cluster's client or task
  caf::actor timer;
  caf::actor caller;  // calls callbacks whose results were known at once
  caf::actor sim;     // of all simulated devices; invalid without any

 private:
  Impl(caf::actor_system* host, std::string_view task);
  /// Throws what the standard library and CAF do; shut_down() then ends what there is.
  void start(EngineOptions options);
  void start_system(const EngineOptions& options);
  void start_actors(const EngineOptions& options);
  void called(const std::function<void()>& callback) const;
  /// count_actor() and watch().
  const caf::actor& watched(const caf::actor& actor, std::function<void(const std::string& reason)> died);
  /// One more for shut_down() to wait for.
  void count_actor();
  /// Counts the actor no more when it has ended; `died` is called when that was otherwise than by shut_down(): on the
  /// actor's thread or, where it is dead already, within this call.
  void watch(const caf::actor& actor, std::function<void(const std::string& reason)> died);
  void device_died(uint32_t device, const std::string& reason);
  void abandon(const std::function<bool(const StepPlan&)>& needs, const std::string& what);

  Send send_;
  const uint64_t forks_;  // when it was made
  std::atomic<bool> ended_{false};
  std::deque<std::atomic<bool>> dead_;  // devices
  std::unique_ptr<caf::actor_system_config> config_;
  std::unique_ptr<caf::actor_system> own_system_;
  caf::actor_system* system_;
  std::mutex actors_mutex_;
  std::condition_variable actors_ended_;
  int actors_ = 0;
};

/// What Engine::create makes, without waiting for a cluster's tasks; of one without a cluster an engine alone.
Result<std::shared_ptr<Engine::Impl>> make_client(EngineOptions options, caf::actor_system* host);
/// A task of a cluster (ClusterWorker).
Result<std::shared_ptr<Engine::Impl>> make_task(EngineOptions options, caf::actor_system* host);

/// Engine's friend.
struct EngineMaker {
  static std::unique_ptr<Engine> of(std::shared_ptr<Engine::Impl> impl) {
    return std::unique_ptr<Engine>(new Engine(std::move(impl)));
  }
  static Result<std::unique_ptr<Engine>> make(EngineOptions options, caf::actor_system* host);
};

}  // namespace troupe
