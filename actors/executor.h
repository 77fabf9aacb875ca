// SPDX-License-Identifier: Apache-2.0
// Executor: fires the nodes of one device. A plain class: its device actor calls it, one call at a time, and carries
// out what it puts into its Outbox.
//
// Invariants:
//  1. A node fires when its count of dependencies reaches zero, once a step.
//  2. A value lives in its slot until the last node that reads it has run.
//  3. A partition reports partition_done() once: when all its nodes are done, or, after a failure, when no request of
//     it is unanswered. So when a step's caller hears of the end, nothing of the step is under way.
#pragma once
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "actors/step.h"
#include "troupe/engine.h"

namespace troupe {

/// A tensor (or, undefined, a mere signal) for a Recv of another partition.
struct ReadyTensor {
  StepRef call;
  uint32_t node = 0;
  Tensor value;
};

/// One request to the host of a resource. The kernel lives as long as the step that waits for the reply.
struct ResourceUse {
  ResourceKernel* kernel = nullptr;
  std::vector<Tensor> inputs;
  std::shared_ptr<Allocator> allocator;
  RequestTag tag;
};

/// The answer.
struct ResourceAnswer {
  RequestTag tag;
  Result<std::vector<Tensor>> outputs;
};

/// Where an executor's messages go. Its device actor implements it; tests record.
class Outbox {
 public:
  virtual ~Outbox() = default;
  /// To another device's executor: tensors_ready().
  virtual void send_tensors(uint32_t device, std::vector<ReadyTensor> tensors) = 0;
  /// A request; an error if there is no such resource. The answer comes by answered(), even if at once.
  virtual Status use_resource(const ResourceRef& handle, ResourceUse use) = 0;
  /// Sends on what use_resource has gathered.
  virtual void flush_uses() = 0;
  /// Tells the hosts of unanswered requests of a step to drop them.
  virtual void cancel_uses(int64_t step) = 0;
  /// To the other devices of a failed step: abort().
  virtual void abort_elsewhere(const StepRef& call) = 0;
  virtual int64_t now_ns() = 0;
};

/// Nodes waiting to fire, first in first out. A step pushes each node at most once, so nothing is ever moved.
class ReadyQueue {
 public:
  bool empty() const { return head_ == nodes_.size(); }
  size_t size() const { return nodes_.size() - head_; }
  void push(uint32_t node) { nodes_.push_back(node); }
  uint32_t pop() {
    const uint32_t node = nodes_[head_++];
    if (head_ == nodes_.size()) clear();
    return node;
  }
  /// The i-th after the first; i < size().
  uint32_t ahead(size_t i) const { return nodes_[head_ + i]; }
  void clear() {
    nodes_.clear();
    head_ = 0;
  }

 private:
  std::vector<uint32_t> nodes_;
  size_t head_ = 0;
};

/// A step at work on one device.
struct StepState {
  StepRef call;
  const PartitionPlan* plan = nullptr;
  std::vector<int32_t> pending;   // dependencies left, by node
  std::vector<int32_t> uses;      // readers left, by slot
  std::vector<Tensor> values;     // by slot
  ReadyQueue ready;               // cheap nodes, run first
  std::vector<uint32_t> heavy;    // nodes measured to be expensive, last in first out
  uint32_t left = 0;              // nodes not done
  uint32_t unanswered = 0;        // requests
  uint32_t input_unanswered = 0;  // of them to queues and iterators
  bool stopped = false;           // failed: nothing more fires
  bool timed = false;             // every node of this step is timed
};

class Executor {
 public:
  /// Counters that any thread may read.
  struct Counters {
    std::atomic<int64_t> steps{0}, nodes{0}, busy_ns{0}, input_wait_ns{0};
  };

  Executor(uint32_t index, const DeviceInfo& device, Outbox& outbox, Counters& counters);
  ~Executor();

  /// Begins this device's part of a step.
  void start(StepRef call);
  void tensors_ready(std::vector<ReadyTensor> tensors);
  void answered(std::vector<ResourceAnswer> answers);
  /// The step failed or was cancelled elsewhere.
  void abort(const StepRef& call);

  /// Fires what is ready for at most about `quantum_ns`; true when something is left to fire.
  bool run(int64_t quantum_ns);
  bool idle() const { return active_.empty(); }

 private:
  StepState* find(int64_t step);
  std::unique_ptr<StepState> make_state(StepRef call, const PartitionPlan& plan);
  void push(StepState& s, uint32_t node);
  void trace(const StepState& s, uint32_t node, bool answer, int64_t begin_ns, int64_t end_ns) const;
  /// Fires one node, true if its successors may go on at once.
  bool fire(StepState& s, uint32_t node);
  bool fire_resource(StepState& s, uint32_t index, const PlanNode& node);
  void complete(StepState& s, uint32_t node);
  void receive(StepState& s, uint32_t node, Tensor value);
  Status check_numerics(const StepState& s, const PlanNode& node) const;
  void fail(StepState& s, const Node* node, Error error);
  void stop(StepState& s);
  void flush();
  /// Ends the state if nothing is left of it; true if so.
  bool finish_if_done(StepState& s);

  const uint32_t index_;
  const DeviceInfo& device_;
  Outbox& outbox_;
  Counters& counters_;
  std::vector<std::unique_ptr<StepState>> active_;                // few; in the order of arrival
  std::unordered_map<int64_t, std::vector<ReadyTensor>> early_;   // tensors that came before their step
  std::unordered_map<uint32_t, std::vector<ReadyTensor>> sends_;  // gathered, by device
  bool uses_gathered_ = false;
  int64_t waiting_since_ = 0;  // for input, with nothing else to do; 0: not
};

}  // namespace troupe
