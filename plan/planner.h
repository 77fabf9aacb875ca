// SPDX-License-Identifier: Apache-2.0
// Planner: makes the plan of one signature: prune, rewrite, place, partition, flatten (plan.cpp); what crosses from
// device to device (planner_transfers.cpp), and between a device's memory and the host's (planner_spaces.cpp); loops on
// several devices (planner_loops.cpp); what partial runs have beside (planner_partial.cpp).
#pragma once
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "graph/passes/pass_devices.h"
#include "plan/loop_places.h"
#include "plan/node_kernels.h"
#include "plan/partition_draft.h"
#include "plan/placer.h"

namespace troupe {

/// Used once: make() is called once, and the rest is its steps.
class Planner {
 public:
  Planner(const Graph& graph, const PlanContext& context, KernelCache& cache)
      : graph_(graph), context_(context), cache_(cache), placer_(context), plan_(std::make_shared<StepPlan>()) {}

  Result<std::shared_ptr<const StepPlan>> make(std::vector<Output> feeds, std::vector<Output> fetches,
                                               const std::vector<const Node*>& targets);

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Place {
    uint32_t partition, node;
  };
  struct LateReader {
    uint32_t partition, node, slot;
  };
  /// A Send and its Recv, of an output or of the mere fact that its node has run.
  struct Pair {
    Place send, recv;
    Output what;
    bool value;
  };
  class PartWriter;

  // -- plan.cpp: nodes and their inputs -------------------------------------------------------------------------------

  /// Nodes whose being dead matters to more than their readers: what Merges choose from, and fetches that wait; and
  /// what decides for several devices whether a loop goes on.
  void find_chosen(const std::vector<const Node*>& needed);
  Result<NodeKernel> kernel_of(const Node& node, uint32_t device);
  /// Puts a node into the partition of its device; a constant nowhere: those who read it get slots.
  Status add(const Node& node, uint32_t device);
  /// All nodes that have no kernel, as one error.
  Error lacking() const;
  /// Gives a node its input slots and edges.
  Status connect(const Node& node);
  /// Has `here`, whose edges begin at first_edge, wait for what `node` waits for by control inputs, and its constant
  /// inputs do, which are not nodes of the plan.
  Status wait_for_controls(const Node& node, Place here, size_t first_edge);
  /// The slot of `in` in the partition of `here`, where it is input `index`, with the edge that fills it.
  Result<uint32_t> input_slot(const Output& in, Place here, int index);
  /// Each partition has a slot of its own for a constant that it reads: nothing need be sent.
  Result<uint32_t> constant_slot(const Node& node, uint32_t partition, Space space = Space::kHost);
  /// See FindCards.
  std::optional<std::vector<std::string>> cards_of(const Node& collective) const;
  /// What reads slots beside the graph's nodes: sends and conversions, laid out behind, and fetches.
  Status add_readers();
  Status add_fetches();
  Status close();
  /// `asked`: what was said of nodes of other partitions, whose sends have the node's priority.
  Status ask_priorities(PartitionPlan& plan, std::unordered_map<const Node*, int16_t>& asked) const;
  int priority(const Node& node) const;
  /// What was measured before, as if this plan had.
  void begin_costs(PartitionPlan& plan) const;
  uint32_t partition_of(uint32_t device);
  uint32_t place(const Node& node) const {
    const int frame = std::max(frames_.of[static_cast<size_t>(node.id())], frames_.of_output(node));
    return frame == 0 || context_.part ? device_of(node) : loops_.device(node);
  }
  uint32_t frame_of(const Node& node) const {
    return static_cast<uint32_t>(frames_.of[static_cast<size_t>(node.id())]);
  }
  /// What a node without inputs puts out in every step, where its kernel says so, and it need not run; else nullptr.
  Result<const Tensor*> constant_output(const Node& node, uint32_t device, const ComputeKernel* kernel) const;
  const Tensor* constant(const Node& node) const { return constants_[static_cast<size_t>(node.id())]; }

  // -- planner_transfers.cpp: from device to device -------------------------------------------------------------------

  /// The Recv in `partition` of an output, or, without its value, of the mere fact that the node has run (of an
  /// output of a Switch: that it was taken). There is one pair for each tensor or fact and destination.
  Result<Place> transfer(const Output& what, bool value, uint32_t partition);
  /// A Send behind `from` and its Recv in `partition`, of that output or the mere fact; `what` it is to the graph.
  Result<Place> add_pair(Place from, int port, bool value, uint32_t partition, Output what = {});
  uint32_t frame_of_outputs(Place at) const;
  /// Gives a node that is none of the graph's its next input. The inputs of one node are given one after the other.
  void read_later(uint32_t partition, uint32_t node, uint32_t slot);
  bool is_compressed(const Output& what) const;
  /// The node that expands it in `partition`. It is made smaller once for all who receive it.
  Result<Place> transfer_compressed(const Output& what, Place from, uint32_t partition);
  /// A Cast behind `from`, which puts out `what` there.
  Result<Place> convert(const Output& what, Place from, DType to);
  /// Delays late receives until shortly before their first reader.
  Status hold_back_receives();
  /// A node of `partition` that lives and is done once `until` is done, be it dead or not.
  Result<uint32_t> release(const Node& until, uint32_t partition);

  // -- planner_spaces.cpp: devices with memory of their own
  // ------------------------------------------------------------

  /// A value in a partition: its slot, and what fills that (node kNone: a feed or constant).
  struct Held {
    Place from;
    int port;
    uint32_t slot;
    Space space;
    const Node* node;  // it is an output of
  };
  /// Whether values in the partition may be in another memory than the host's. Those of other tasks see to it there.
  bool has_memory(uint32_t partition) const;
  /// Where a node has an output; where it wants its input `index`, of that type.
  Result<Space> space_of_output(Place at, int port) const;
  Result<Space> space_of_input(Place here, int index, DType dtype) const;
  Result<Held> output_held(Place at, int port) const;
  /// The same value in another memory. One copy serves all who want it there.
  Held copied(const Held& value, Space space);
  Result<uint32_t> slot_at_host(Place& from, int& port, uint32_t slot);

  // -- planner_swaps.cpp: values that leave a GPU for a while ---------------------------------------------------------

  /// Whether an output that `here` reads in a GPU's memory may leave that meanwhile.
  bool swaps(const Held& value, Place here) const;
  /// What `here` is to read in its place: the value itself, or where it has come back from the host. Readers ask in the
  /// order of the plan.
  Held swapped(const Held& value, Place here);
  /// The first, or the last, node of the graph in [begin, end) that computes; kNone: there is none.
  uint32_t compute_node_between(uint32_t partition, uint32_t begin, uint32_t end, bool first) const;

  // -- planner_cut.cpp: steps of several tasks ------------------------------------------------------------------------

  /// Has what uses a resource run in the task where that is, whatever it names, and places loops.
  Status place_tasks(const std::vector<const Node*>& needed);
  Status find_homes();
  /// Has what makes a resource for this step alone be where a loop uses it. Returns whether anything moved.
  bool bring_makers();
  /// Of a node that makes a handle: has it where the resource is, if it is anywhere; an iterator where it asks to be.
  Status bring_home(const Node& node);
  /// The device that a node goes to, but for what LoopPlaces says.
  uint32_t device_of(const Node& node) const {
    const auto moved = moved_.find(node.id());
    return moved == moved_.end() ? placer_.device_of(node) : moved->second;
  }
  const std::string& task_of_partition(uint32_t partition) const { return tasks_[drafts_[partition].plan.device]; }
  /// The first device of this task.
  uint32_t own_device() const {
    return static_cast<uint32_t>(std::ranges::find(tasks_, context_.task) - tasks_.begin());
  }
  bool is_remote(uint32_t device) const { return !context_.task.empty() && tasks_[device] != context_.task; }
  /// Whether a device of another task takes part.
  bool spans_tasks() const;
  /// Makes the plan one of parts.
  Status cut();
  int part_priority(const Node& node) const;
  /// Of a part: gives its Sends their Recvs, or the other tasks, and lists the Recvs that other tasks send to.
  Status find_edges();
  void number_edges(const std::vector<std::vector<uint32_t>>& renumbered);

  // -- planner_datasets.cpp: what cannot go from task to task ---------------------------------------------------------

  /// What made the dataset or the lock in a value; nullptr: it holds none.
  const Node* maker_of(Output value) const;
  /// Where a node goes that reads a handle of `holder` (nullptr: none), or datasets: to the task of that handle, to
  /// that where it asks to be, or to that of a dataset; the datasets that are elsewhere come along. Returns nothing for
  /// other nodes. Error: a dataset is made elsewhere, and has to be.
  Result<std::optional<uint32_t>> place_reader(const Node& node, const Node* holder);
  /// `adds`, which reads a handle of `holder`, may add it to a list: has that list, and all that it goes through, on
  /// the handle's device, where its makers ask for one; else they are together anyway.
  void place_list(const Node& adds, const Node& holder);
  /// The node at which the handle that `holder` gives begins.
  const Node& first_holder(const Node& holder) const;
  /// Has what makes handles, and their lists, be where loops have them that are at home. Returns whether anything
  /// moved.
  bool bring_lists();
  Error does_not_go(Output value, const Node& reader, uint32_t device) const;
  /// Error: several readers want a dataset on several tasks.
  Status check_readers() const;
  /// Whether what makes the dataset of `value` may be in the task of `device`, with the datasets that that reads; adds
  /// what has to move there.
  bool may_go(Output value, uint32_t device, std::vector<const Node*>& moves) const;
  /// Whether what a node asks for leaves that device open.
  bool leaves_open(const Node& node, uint32_t device) const;

  // -- planner_partial.cpp: partial runs ------------------------------------------------------------------------------

  /// Adds to the plan which feeds each fetch needs, as the step's graph is now.
  void find_needs();
  /// Of a step of several tasks: has a partition of this one exchange feeds and fetches with the others.
  void find_exchange();
  /// The Recv of a feed: the caller's or, in another task, that of a pair.
  Result<Place> feed_receiver(uint32_t feed, uint32_t partition);
  /// Has a fetch sent to the caller as soon as it is there: `output`, in that slot, of the node `there` (kNone: a
  /// constant).
  Status send_fetch(uint32_t fetch, const Output& output, Place there, uint32_t slot);
  /// Gives receivers the numbers that their nodes have now.
  void number_receivers(const std::vector<std::vector<uint32_t>>& renumbered);

  // -- planner_loops.cpp: loops on several devices --------------------------------------------------------------------

  /// What loops ask where their nodes would be, by that placer.
  LoopPlaces::Wishes wishes_of(const Placer& placer) const;
  Status place_loops(const std::vector<const Node*>& needed);
  /// What is the same in every iteration enters the loop on each device that reads it, and need not cross in each.
  Result<Place> copy_enter(const Node& node, uint32_t partition);
  /// An Enter into `frame` in `partition`, without input yet.
  Place add_enter(const Node& like, uint32_t frame, bool every_iteration, uint32_t partition);
  /// Gives every device that takes part in a loop iterations of its own.
  Status share_loops();
  /// A small loop that carries a token for as long as the condition holds. Returns its Merge.
  Result<Place> follow_loop(uint32_t frame, const LoopPlaces::Shared& shared, uint32_t partition);
  /// Has `here` wait for `before`, an output of a node, and die with it.
  Status wait_for(const Output& before, Place here);

  /// The id by which what is made for the node is kept in the session's cache; -1: it is not kept.
  int kept_id(const Node& node) const;
  /// Where the nodes of the step go as it is now, for passes that ask for it; empty where no device is a GPU. Where
  /// they cannot be placed no pass that asks does anything.
  PassDevices find_pass_devices();
  std::function<std::optional<DeviceKind>(const Node&)> pass_kinds_;  // what it told; empty: nothing

  const Graph& graph_;
  const PlanContext& context_;
  KernelCache& cache_;
  Placer placer_;
  std::shared_ptr<StepPlan> plan_;
  std::optional<StepGraph> step_;
  std::vector<PartitionDraft> drafts_;
  std::map<uint32_t, uint32_t> partition_by_device_;
  std::map<std::pair<int, int>, uint32_t> fed_;
  std::vector<Place> where_;       // by node id; of a constant kNone
  std::vector<uint32_t> devices_;  // by node id
  std::unordered_set<int> chosen_;
  std::vector<const Tensor*> constants_;  // by node id: what is in slots in place of nodes
  std::map<std::tuple<int, uint32_t, Space>, uint32_t> constant_slots_;  // by id and partition
  std::map<std::pair<uint32_t, uint32_t>, Place> copies_;                // by partition and slot
  struct Swapped {
    uint32_t last_reader;  // so far; first the producer
    Held value;            // what that read
    bool left;             // it has been copied out
  };
  std::map<std::pair<uint32_t, uint32_t>, Swapped> swaps_;        // by partition and slot
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> card_waits_;  // by partition and the node that is waited for
  Frames frames_;
  LoopPlaces loops_;
  std::map<std::pair<int, uint32_t>, Place> enter_copies_;        // by id and partition
  std::set<std::tuple<uint32_t, uint32_t, uint32_t>> crossings_;  // from, to, frame
  bool control_flow_ = false;
  std::map<std::tuple<int, int, bool, uint32_t>, Place> transfers_;
  std::vector<Pair> pairs_;
  // Of steps that tasks share:
  std::vector<std::string> tasks_;                 // by device
  std::map<int, std::vector<const Node*>> lists_;  // what goes through them, by the id of the first holder
  std::unordered_map<int, uint32_t> moved_;        // devices, by node id
  bool brings_ = false;                            // datasets were moved in this round
  std::map<std::tuple<int, int, bool, std::string>, Place> first_in_task_;  // Recvs
  std::map<std::pair<uint32_t, uint32_t>, size_t> pair_of_send_, pair_of_recv_;
  std::map<std::pair<int, int>, Place> compressed_;  // by id and port of what they compress
  std::vector<LateReader> late_readers_;
  std::map<std::pair<uint32_t, uint32_t>, Place> feed_receivers_;  // by feed and partition
  uint32_t exchange_ = kNone;                                      // see find_exchange()
  // What the node that is given its control edges, the waiter_-th, waits for already has that number: nodes of its
  // partition, and constants by id.
  uint32_t waiter_ = 0;
  std::vector<std::vector<uint32_t>> waited_for_;  // by partition
  std::vector<uint32_t> waited_through_;
  std::vector<const Node*> waits_;                         // those whose control inputs are still to be looked at
  std::map<std::pair<int, uint32_t>, uint32_t> releases_;  // by id of what is waited for, and partition
  std::vector<Error> lacking_;                             // of nodes without a kernel
};

}  // namespace troupe
