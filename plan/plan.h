// SPDX-License-Identifier: Apache-2.0
// make_plan: the plan of the steps of one signature: pruned, rewritten, placed, partitioned, with kernels looked up.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "devices/step_plan.h"
#include "troupe/cost_model.h"
#include "troupe/graph_passes.h"
#include "troupe/placement.h"
#include "troupe/transfers.h"

namespace troupe {

/// Kernels of one session, so that plans share them and what they keep (a random op's counter). Those of the graph's
/// nodes stay, one a node and kind of device; those of nodes that passes made live as long as a plan has them.
/// Thread-safe: where two threads make a kernel at once, the first that is kept is the one of both. No kernel is made
/// or called within.
class KernelCache {
 public:
  /// The kernel of the graph's node of that id on devices of a kind; nullptr where there is none yet.
  std::shared_ptr<Kernel> find(int id, DeviceKind kind) const;
  /// Keeps `kernel`, unless the node has one there. Returns the node's.
  std::shared_ptr<Kernel> keep(int id, DeviceKind kind, std::shared_ptr<Kernel> kernel);
  /// The same of shareable kernels, by device kind, op and attributes.
  std::shared_ptr<Kernel> find(const std::string& key) const;
  std::shared_ptr<Kernel> keep(const std::string& key, std::shared_ptr<Kernel> kernel);
  /// The graph's Const of that id in the memory of a device (by number) that has its own, for as long as a plan has it;
  /// nullptr where none has.
  std::shared_ptr<const Tensor> find_constant(int id, uint32_t device) const;
  /// Keeps `value`, unless there is one. Returns the one there.
  std::shared_ptr<const Tensor> keep_constant(int id, uint32_t device, std::shared_ptr<const Tensor> value);
  /// Takes the keys of those out that no plan and no node has any more.
  void forget_unused();

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Kernel>> by_node_;  // by place_of()
  std::unordered_map<std::string, std::weak_ptr<Kernel>> shareable_;
  std::map<std::pair<int, uint32_t>, std::weak_ptr<const Tensor>> constants_;
};

/// What planning needs to know of the engine.
struct PlanContext {
  const KernelRegistry& kernels;
  std::span<const DeviceInfo> devices;
  uint32_t default_device = 0;
  bool soft_placement = false;  // see SessionOptions
  GraphPasses passes = {};
  std::function<int(const Node&)> priority = {};  // see SessionOptions
  Placing placing = Placing::kByHand;             // this and what follows: see SessionOptions
  const CostModel* costs = nullptr;
  Links links = {};
  int64_t timed_steps = 3;
  TransferCompression compress_transfers = TransferCompression::kOff;
  bool schedule_receives = false;
  int64_t swap_to_host_after = 0;
  bool partial = false;  // see PartialPlan
  /// Of a cluster: this process's task; a step that needs devices of others is cut (StepPlan::cut). Empty: of none.
  std::string task = {};
  /// Of a cluster: the device (by number) where the resource of that key is; the one given, if it is nowhere yet.
  std::function<uint32_t(const std::string& key, uint32_t device)> home = {};
  /// The graph is a part that was cut (plan/cut.h): it is laid out as it is. Takes no passes.
  bool part = false;
  uint64_t scatter = 0;  // of a cluster: see ClusterOptions
  /// Whether a library joins these devices, by number, in collectives. Empty: there is none.
  std::function<bool(std::span<const uint32_t> devices)> collectives = {};
};

/// "cpu", "sim": what a device is called in a cost model.
std::string kind_of(const DeviceInfo& device);

/// The device that `text`, a full or partial name, means: the first that matches. Error: none does (all are listed).
Result<uint32_t> find_device(const std::string& text, std::span<const DeviceInfo> devices);

/// Builds the plan: prunes, runs the passes, places, partitions. Any thread; it takes the graph's mutex only while it
/// looks nodes up, so that kernels, their factories and `priority`, which are the user's, are called without a lock.
/// Errors: a device that is not there or not unique (those there are listed); no kernel (every such node
/// is named); a placeholder not fed; what needed_nodes reports.
Result<std::shared_ptr<const StepPlan>> make_plan(const Graph& graph, std::vector<Output> feeds,
                                                  std::vector<Output> fetches, const std::vector<const Node*>& targets,
                                                  const PlanContext& context, KernelCache& cache);

}  // namespace troupe
