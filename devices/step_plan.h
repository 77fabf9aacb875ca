// SPDX-License-Identifier: Apache-2.0
// StepPlan: what the steps of one signature (feeds, fetches, targets) share: for each device a partition, as flat
// arrays with kernels looked up. plan/ makes it; any number of steps on any number of devices read it.
#pragma once
#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "troupe/blocking_kernel.h"
#include "troupe/graph.h"

namespace troupe {

struct CutStep;
struct StepState;

/// How the executor carries a node out.
enum class NodeKind : uint8_t {
  kConst,     // its value is in the plan; only of those that a Merge may choose, others are no nodes of a plan
  kNoOp,      // control only
  kCompute,   // a kernel on this device
  kResource,  // a request to the actor that hosts the resource of input 0
  kBlocking,  // a request to the actor for work that waits for files
  kSend,  // its input (or, without one, a mere signal) goes to a Recv of another partition or task, or to the caller
  kRecv,  // waits for that, or for a feed of a partial run
  kCopy,  // its input in another memory; of a device that has its own
  kWait,  // done when all is that was run before; of a device that runs on
  // Control flow: what OpDef::control_flow says.
  kSwitch,
  kMerge,
  kEnter,
  kExit,
  kNextIteration,
  kTrigger,
  kAlive,
};

/// One node of a partition. Slots are places for values: one for each output, each feed, each received tensor and each
/// constant. They are numbered within the frame that they belong to; outputs of an Enter, Exit or NextIteration are in
/// another frame or iteration than their node.
struct PlanNode {
  NodeKind kind = NodeKind::kNoOp;
  uint16_t num_inputs = 0;
  uint16_t num_outputs = 0;
  uint32_t first_input = 0;      // into PartitionPlan::input_slots
  uint32_t first_output = 0;     // slot of output 0
  uint32_t first_successor = 0;  // into PartitionPlan::successors; they end where the next node's begin
  union {
    ComputeKernel* compute = nullptr;
    ResourceKernel* resource;
    uint32_t blocking;  // into StepPlan::blocking
    const Tensor* constant;
    Space space;  // kCopy: where to
    struct {
      uint32_t partition;  // kSend: where to; kCaller: to the caller of a partial run; kPeer: to another task
      uint32_t node;       // the Recv there; for the caller the index of the fetch; for another task the edge
    } to;
    struct {
      uint32_t frame;
      bool every_iteration;
    } enter;            // kEnter: where to
    DType alive_dtype;  // kAlive: of its input
    struct {
      uint16_t enters;  // that come in the first iteration only
      uint16_t nexts;   // NextIterations, which come in the others only
    } merge;            // kMerge: how many inputs are so
  };
};

/// How a loop is carried out that needs no counts: one iteration after the other, its nodes in an order that was found
/// when the plan was made. plan/loop_order.h tells which loops have one.
struct LoopOrder {
  /// An iteration begins with what the loop was entered with, or with what the last one has handed on: slots.
  struct Merge {
    uint32_t merged, entered, handed_on;
  };
  /// Nodes that compute.
  struct Nodes {
    std::vector<uint32_t> all;
    uint32_t inner = 0;  // from this one of them on, those that run only if another iteration comes
  };
  std::vector<Merge> merges;  // empty: the loop has no such order
  Nodes first, later;         // of the first iteration; of the others, where what would be the same again is left out
  std::vector<uint32_t> switches, nexts;
  const Nodes& nodes(uint32_t iteration) const { return iteration == 0 ? first : later; }
  /// An Identity is left out: its readers read what it would hand on. So nodes, by first_input, have other input
  /// slots here, and slots other numbers of readers. All are counted within the frame.
  std::vector<uint32_t> first_input, input_slots;
  std::vector<int32_t> uses;
  bool empty() const { return merges.empty(); }
};

/// A loop, or (the first of a plan) the step itself: what one iteration of it is made of.
struct FramePlan {
  std::string name;
  uint32_t parent = 0;
  uint32_t first_node = 0, num_nodes = 0;
  uint32_t num_slots = 0;
  uint32_t enters = 0;     // Enter nodes that lead here
  uint32_t num_recvs = 0;  // of a loop: Recv nodes, each of which gets something in every iteration
  uint32_t parallel = 1;   // iterations that may overlap
  // Of a loop's slots those of constants are last, and before them those of what is the same in every iteration.
  uint32_t num_values = 0;      // the others
  uint32_t num_invariants = 0;  // outputs of Enter nodes with is_constant
  std::vector<uint32_t> exits;  // Exit nodes that lead out of it
  LoopOrder order;              // of a loop
  /// Slots that hold their value from the first iteration on: nobody waits for a constant, but who reads it waits for
  /// what it would wait for.
  std::vector<std::pair<uint32_t, const Tensor*>> constants;
  /// What an iteration begins with: of each node its predecessors, and 1 more for a Recv (of a Merge 1, and 2 for each
  /// control input); of each slot how many inputs and fetches read it; with control flow a 0 for each node.
  std::vector<int32_t> counts;
};

/// Where a Send goes whose value a partial run gets at once.
constexpr uint32_t kCaller = UINT32_MAX;
/// Where a Send goes whose Recv is in another task.
constexpr uint32_t kPeer = UINT32_MAX - 1;

/// The readers of a slot that keeps its value are counted from here, so that it is never the last one's to take.
constexpr int32_t kKeptUses = 1 << 30;

/// What one device does in a step.
struct PartitionPlan {
  uint32_t device = 0;                   // index into the engine's devices
  std::vector<PlanNode> nodes;           // with one more at the end, which closes the last row of successors
  std::vector<const Node*> graph_nodes;  // of nodes[i]; of a Send the producer, of a Recv nullptr
  std::vector<uint32_t> input_slots;
  std::vector<uint32_t> successors;
  std::vector<FramePlan> frames;                     // nodes and slots of one are next to one another
  bool control_flow = false;                         // some partition has a Switch, Merge, loop
  bool by_cost = false;                              // `priorities` are: they say nothing of other steps
  std::vector<int16_t> successor_ports;              // with control flow, of successors[i]: from which output, -1: none
  std::vector<uint32_t> roots;                       // nodes without dependencies
  std::vector<std::pair<uint32_t, uint32_t>> feeds;  // (index of the feed, slot)
  std::vector<std::pair<uint32_t, uint32_t>> fetches;  // (slot, index of the fetch)
  std::vector<int16_t> priorities;                     // of nodes[i]; empty: 0 for each
  /// Nodes dearer than this run after the cheap ones, with what is gathered sent on before.
  static constexpr uint32_t kHeavyNs = 20'000;
  /// Measured nanoseconds of nodes[i], by the executor of `device`; steers what runs inline and first.
  std::unique_ptr<std::atomic<uint32_t>[]> cost_ns;
  /// What steps that time their nodes saw of nodes[i], for a CostModel; written by the same, read by any thread.
  struct Measured {
    std::atomic<uint32_t> firings{0};
    std::atomic<float> ns{0}, bytes{0};  // means; of all outputs
    std::atomic<uint32_t> steps{0};      // with control flow, in which its firings were counted
    std::atomic<float> in_step{1};       // so many, a mean
  };
  std::unique_ptr<Measured[]> measured;
  int64_t timed_steps = 3;  // from the second on, all nodes are timed in so many; later in every 64th

  uint32_t size() const { return static_cast<uint32_t>(graph_nodes.size()); }

  /// Finished states kept for the next step. Only the executor of `device` touches it.
  mutable std::vector<std::unique_ptr<StepState>> spare;
  mutable int64_t started = 0;  // steps; likewise
  PartitionPlan();
  PartitionPlan(PartitionPlan&&) noexcept;
  ~PartitionPlan();
};

/// What the plan of a partial run has beside: its feeds come while it runs, and its fetches go out then.
struct PartialPlan {
  struct Receiver {
    uint32_t partition, node;  // a Recv
  };
  std::vector<std::vector<Receiver>> receivers;            // by feed
  std::vector<std::vector<uint32_t>> needs;                // by fetch: the feeds without which it does not come, sorted
  std::vector<std::pair<uint32_t, uint32_t>> fed_fetches;  // (feed, fetch): a feed that is fetched
};

/// A Recv of the part that one task has in a step; what it waits for comes from another task.
struct EdgeReceiver {
  uint32_t edge = 0;
  uint32_t partition = 0, node = 0;
  uint32_t depth = 0;        // of the loops around it: so many numbers of iterations come with what it gets
  bool conditional = false;  // what it gets may be dead
  bool has_value = false;    // else a mere signal
  DType dtype = DType::kInvalid;
  PartialShape shape = {};
};

struct StepPlan {
  std::vector<PartitionPlan> partitions;
  std::vector<Output> feeds;  // in the order of the values a step brings
  std::vector<Output> fetches;
  std::vector<std::pair<uint32_t, uint32_t>> fed_fetches;  // (feed, fetch): answered without running anything
  std::optional<PartialPlan> partial;                      // of a partial run
  std::vector<EdgeReceiver> edges;                         // of a part of a step, by edge
  std::shared_ptr<const CutStep> cut;                      // of a step that several tasks run, which has no partitions
  std::vector<std::shared_ptr<Kernel>> kernels;            // keeps what nodes point to
  std::vector<std::shared_ptr<BlockingKernel>> blocking;   // calls of them share these, and may outlast the plan
  std::shared_ptr<const std::deque<Node>> made_nodes;      // by passes
  std::shared_ptr<std::deque<Node>> conversions = std::make_shared<std::deque<Node>>();  // of what travels otherwise
  std::vector<std::shared_ptr<const Tensor>> constants;  // in the memory of devices that have their own
  Tensor token = Tensor::scalar(true);                   // what a device carries that only follows a loop

  bool uses_resources() const {
    return std::ranges::any_of(partitions, [](const PartitionPlan& p) {
      return std::ranges::any_of(p.nodes, [](const PlanNode& n) { return n.kind == NodeKind::kResource; });
    });
  }
};

}  // namespace troupe
