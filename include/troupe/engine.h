// SPDX-License-Identifier: Apache-2.0
// Engine: devices, registries and everything that outlives a session. Implemented in actors/engine.cpp.
#pragma once
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "troupe/dataset.h"
#include "troupe/deadline.h"
#include "troupe/export.h"
#include "troupe/graph.h"
#include "troupe/op_library.h"

namespace TROUPE_API troupe {

/// Counters of one device since the engine started.
struct DeviceStats {
  std::string name;
  int threads = 1;
  int64_t steps = 0;          // partitions completed
  int64_t nodes = 0;          // nodes fired
  int64_t busy_ns = 0;        // running nodes
  int64_t input_wait_ns = 0;  // steps in flight, nothing ready, a queue, iterator or reader asked and not answered
  AllocatorStats memory;
};

class CostModel;

/// Simulated devices, "/device:sim:0" and on: kernels of the CPU serve them, but time passes by a model, on one virtual
/// clock that starts at 0. So two cores can run the schedule of a thousand devices, exactly and repeatably.
///
/// A node takes NodeCost::time_ns of the shapes it has in the step (control flow and transfers' ends take nothing), one
/// node at a time on each device. A tensor to another simulated device takes LinkRates::time_ns, and holds a port of
/// either meanwhile: one that sends, one that receives. Questions to variables, queues and the like are answered in no
/// time, and the clock stands still until they are, but an update takes its arithmetic's time on the device that asks.
/// What goes to or comes from devices of other kinds, files and datasets takes no time either, and comes when it comes:
/// for an exact schedule, keep a step and its default device on simulated ones.
struct SimOptions {
  std::vector<DeviceRates> devices = {};
  LinkRates link = {};
  /// Without, nodes whose outputs are floating-point tensors of inferred shapes do not run but give zeros that take
  /// address space and no memory, and updates of such variables change nothing. All else runs.
  bool compute = true;
  /// Nodes measured there (as of kind "sim", else "cpu") take that time.
  std::shared_ptr<const CostModel> costs = {};
};

struct GpuPlatform;  // devices/gpu_platform.h

/// GPUs, "/device:gpu:0" and on, card after card. Their kernels run in a stream of their own: a step's nodes are handed
/// to it one after the other, and values are copied where they cross to other devices or to the caller. What has no
/// kernel there runs on the CPU where SessionOptions::soft_placement lets it.
struct GpuOptions {
  /// Cards to use, of those that CUDA_VISIBLE_DEVICES lets be seen, the first ones; -1: all, of which there may be
  /// none.
  int cards = 0;
  /// Devices on each card, with a share of its memory each, so that a program for several GPUs runs on one. At most 64.
  int devices_per_card = 1;
  /// The part of each card's memory that its devices may take, together: above 0, at most 1. None is taken before it is
  /// needed.
  double memory_fraction = 0.95;
  /// Bytes that each device may take, if that is less; 0: no more than its share. A device needs 4 MiB either way.
  int64_t memory_limit = 0;
  /// Products of float32 may be made of numbers rounded to 10 bits of mantissa (TF32), which is several times as fast.
  bool tf32 = false;
  /// How long what devices of several cards do together (troupe/collectives.h) may take, from when the first of them
  /// has come to it: above 0. Then its step has an error that names the devices that have not come or hang.
  std::chrono::nanoseconds collective_timeout{std::chrono::seconds(60)};
  /// What stands in for CUDA; null: CUDA itself.
  std::shared_ptr<const GpuPlatform> platform = {};
};

/// Files of PEM for TLS, as `troupe cluster keys` makes them. Each connection has what they hold when it begins.
struct ClusterTls {
  std::string ca = {};           // the cluster's authority
  std::string certificate = {};  // of this process: it names the cluster and the task, or a client
  std::string key = {};          // without a password; only its owner may be able to read it

  bool operator==(const ClusterTls&) const = default;
};

/// A cluster of tasks, each a process somewhere, see troupe/cluster.h.
struct ClusterOptions {
  /// JSON: {"cluster": {"worker": ["host:port", ...], "ps": [...]}, "name": "..."}, or that of TF_CONFIG; addresses are
  /// host:port, [IPv6]:port or unix:PATH. Empty: no cluster. An engine with one is its client: it has the devices of
  /// all tasks behind its own, "/job:worker/replica:0/task:1/device:cpu:0".
  std::string spec = {};
  /// Of a ClusterWorker: which task it is; empty: the JSON's "task" says it.
  std::string job = {};
  int task = 0;
  /// How long a client waits for all tasks to be there; max: for ever.
  std::chrono::nanoseconds wait{std::chrono::seconds(60)};
  /// A task that says nothing is asked so often, and lost after so long a silence.
  std::chrono::nanoseconds heartbeat{std::chrono::milliseconds(200)};
  std::chrono::nanoseconds silence{std::chrono::seconds(2)};
  /// Without files nothing is encrypted, and nobody proves who he is: see docs/cluster.md. With them all of the cluster
  /// must have them: connections are of TLS 1.3, and either side checks the other's certificate.
  ClusterTls tls = {};
  /// Of a client: measures the links between all tasks (measure_links) once it is connected, for placement by cost,
  /// which otherwise takes them as those of one process.
  bool measure_links = false;
  /// Of a ClusterWorker: the folders in which graphs may read and write files. None: they touch no file. {"/"}: all
  /// that the process may. Kernels of a user's own (EngineOptions::register_ops) and datasets do as they like.
  std::vector<std::string> data_folders = {};
  /// Of a ClusterWorker, and of nobody else: datasets that it has by name for Iterator ops on its devices, from their
  /// first element on for each client, and anew when one resets the default container. When a client goes, what was
  /// produced ahead for it is lost: that matters where a dataset is not repeatable(). Names may be those of other
  /// tasks' datasets: an iterator's device says whose is meant. The process's own: data_folders do not limit them.
  std::map<std::string, Dataset> datasets = {};
  /// Of a client, for tests of programs: not 0, each node goes to a device of a task drawn from this seed and names,
  /// whatever it asks for; what uses the same resource goes together, and iterators stay with the client.
  uint64_t scatter = 0;
};

struct EngineOptions {
  /// Threads of each CPU device, in order: {1, 1} is cpu:0 and cpu:1 with one each. Default: one device with all cores
  /// that the calling thread may run on. At most 1,024 devices, each of 1 to 1,024 threads.
  std::vector<int> cpu_threads = {};
  /// Bytes of tensors each device may hold; 0: no limit.
  int64_t memory_limit = 0;
  /// Scheduler threads, at most 1,024; 0: one for each device, but no more than cores or 16, whichever is more, and at
  /// least two where there are that many cores.
  int scheduler_threads = 0;
  /// GPUs, after the CPU's devices. Errors: kUnavailable, in one line, without a card, driver or library that is
  /// needed.
  GpuOptions gpus = {};
  /// Simulated devices, after those; at most 100,000.
  SimOptions sim = {};
  /// The built-in ops (make_op_library), for programs that make many engines. Null: the engine makes its own.
  std::shared_ptr<const OpLibrary> op_library = {};
  /// Registers ops and kernels of the user's own, after the built-in ones.
  std::function<void(OpRegistry&, KernelRegistry&)> register_ops = {};
  ClusterOptions cluster = {};
};

/// The tensors of one container at one moment: a consistent cut.
struct Snapshot {
  std::map<std::string, Tensor> variables;
};

/// Owns devices, resources and, unless it is given one (see create_engine in embed.h), the actor system. Thread-safe:
/// it may be made, used and destroyed on any threads; any number of engines may live at once.
///
/// Calls that wait (restore, restart_dataset, the future of a snapshot, Session::run) are errors on the engine's own
/// threads, that is in its callbacks, kernels and resources. A BlockingKernel may make them: it has a thread apart. In
/// a child after fork() every call is an error (kFailedPrecondition), and nothing hangs: make another engine there.
class Engine {
 public:
  /// Errors: kInvalidArgument for options out of range; kResourceExhausted where the system refuses threads or memory;
  /// what register_ops throws; kUnavailable, with the tasks and why, where a cluster's are not all there in time.
  static Result<std::unique_ptr<Engine>> create(EngineOptions options = {});
  /// Cancels the steps that run, waits for their callbacks (as long as the kernels at work take, whatever the steps
  /// wait for), then ends the actors and threads. Sessions that live on give errors. In a callback of the engine's own
  /// it does not wait: the engine then ends when the callback has returned.
  ~Engine();
  Engine(const Engine&) = delete;
  /// Why every call fails, if so: this process is a child after fork().
  Status status() const;
  /// Whether the calling thread is the engine's own, and so must not wait for it.
  bool on_engine_thread() const;
  /// For functions that wait for the engine: the error of a call `what` on a thread that must not, or of one in a child
  /// after fork(); it advises to call `instead`.
  Status may_wait(std::string_view what, std::string_view instead = "it from a thread of your own") const;

  const OpRegistry& ops() const;
  const KernelRegistry& kernels() const;
  /// Full names, "/job:localhost/replica:0/task:0/device:cpu:0", ...
  std::vector<std::string> devices() const;
  /// Steps and nodes of each step that has ended are counted. From any thread, also while steps run.
  std::vector<DeviceStats> device_stats() const;
  /// Gives back the memory that devices keep for steps to come, as much as one had in use at once: after the last large
  /// step of a program that goes on with other work. From any thread, also while steps run.
  void trim_memory();

  /// Makes `dataset` available to Iterator ops of this shared_name (see ops::IteratorV2): an actor that produces its
  /// elements ahead. A dataset that waits holds up only the steps that ask it, until their deadlines. Error:
  /// kAlreadyExists when there is one of that name.
  Status add_dataset(const std::string& name, Dataset dataset);
  /// Drops the iterator of that name; steps that wait for its elements are cancelled. It returns at once, though the
  /// dataset may wait: an element that comes later is dropped. From any thread. Error: kNotFound.
  Status remove_dataset(const std::string& name);
  /// The iterator of that name starts again from its first element, also where it waits for one; steps that ask it go
  /// on waiting. From any thread but the engine's own. Of a cluster: that of the client and those of all tasks; one of
  /// a task that is lost begins by itself. Errors: kNotFound; kUnavailable where nobody has it and a task is lost;
  /// kDeadlineExceeded where it takes longer than `deadline` (0: any time), and may be done later.
  Status restart_dataset(const std::string& name, Deadline deadline = {});

  /// A cut of a container's variables between the updates of steps, taken while steps run: a step that has begun to
  /// change variables is waited for and is in it wholly; all that change some later are not in it at all. No step is
  /// held up. Tensors are shared, not copied, and a later update writes a copy. Temporary variables are left out. What
  /// a step that fails has changed until then stays, and is in it. The callback runs on a thread of the engine, once,
  /// and must not block; as the engine ends, and in a child after fork(), it may run within the call. Errors:
  /// kResourceExhausted where a late update found no memory beside the snapshot; kFailedPrecondition, kCancelled where
  /// container or engine went meanwhile. Of a cluster: one cut through the containers of that name on all tasks; runs
  /// that begin meanwhile are sent when all tasks know of it. kUnavailable where one is not there, kAlreadyExists for
  /// one name on two tasks.
  void snapshot(std::function<void(Result<Snapshot>)> done, const std::string& container = "");
  std::future<Result<Snapshot>> snapshot(const std::string& container = "");
  /// Sets variables, creating those there are not. All or nothing: a variable that exists with another dtype or shape
  /// makes it an error that names it. Blocks the calling thread, which must not be the engine's own. Of a cluster: each
  /// on the task where it is, or where a step first uses it; all or nothing in each task by itself. kDeadlineExceeded
  /// where it takes longer than `deadline` (0: any time), and may be done later: an operation on the container may take
  /// as long as it likes.
  Status restore(const Snapshot& snapshot, const std::string& container = "", Deadline deadline = {});
  /// Drops every resource of a container, of a cluster on all tasks: variables, queues, iterators. Steps that wait for
  /// one end with kCancelled, and the container's name. Datasets that were added are the default container's; actors
  /// that were added (embed.h) are in none.
  void reset_container(const std::string& container);

  /// The virtual clock of the simulated devices, nanoseconds; 0 without any.
  int64_t sim_now_ns() const;
  /// As long as a copy of what this returns lives, that clock stands still: steps started meanwhile all begin at the
  /// same virtual time, in the order of their starts. May outlive the engine. Null where there are no such devices.
  [[nodiscard]] std::shared_ptr<void> hold_sim();

  /// For the other folders of the engine and for embed.h.
  class Impl;
  Impl& impl() const { return *impl_; }
  const std::shared_ptr<Impl>& shared_impl() const { return impl_; }

 private:
  friend struct EngineMaker;
  explicit Engine(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace troupe
