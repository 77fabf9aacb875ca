// SPDX-License-Identifier: Apache-2.0
// StepState: a step at work on one device: what is ready, and for each iteration of each loop under way (the step
// itself counts as one iteration of a loop of its own) the dependencies left and the live tensors.
#pragma once
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "devices/exchange.h"
#include "devices/step_call.h"
#include "devices/work_timer.h"

namespace troupe {

/// A node to fire, in an iteration: an index into StepState::iterations.
struct Ready {
  uint32_t node = 0;
  uint32_t iteration = 0;
};

/// Nodes waiting to fire, first in first out.
class ReadyQueue {
 public:
  bool empty() const { return head_ == nodes_.size(); }
  size_t size() const { return nodes_.size() - head_; }
  void push(Ready node) { nodes_.push_back(node); }
  Ready pop() {
    const Ready node = nodes_[head_++];
    if (head_ == nodes_.size()) {
      clear();
    } else if (head_ >= kMostPassed && head_ >= size()) {  // a loop need never leave the queue empty
      nodes_.erase(nodes_.begin(), nodes_.begin() + static_cast<ptrdiff_t>(head_));
      head_ = 0;
    }
    return node;
  }
  /// The i-th after the first; i < size().
  Ready ahead(size_t i) const { return nodes_[head_ + i]; }
  void clear() {
    nodes_.clear();
    head_ = 0;
  }

 private:
  static constexpr size_t kMostPassed = 1 << 16;
  std::vector<Ready> nodes_;
  size_t head_ = 0;
};

/// Of a list of tensors: each has all but its sizes, and with up to four sizes often these too, in one line of the
/// cache. Lists that live for one request do without, for the system takes three times as long for such memory.
template <class T> struct InLines {
  using value_type = T;
  static constexpr std::align_val_t kAt{32};
  static_assert(sizeof(T) % 32 == 0);
  InLines() = default;
  template <class U> explicit InLines(const InLines<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kAt)); }
  void deallocate(T* list, size_t n) { ::operator delete(list, n * sizeof(T), kAt); }
  bool operator==(const InLines&) const { return true; }
};

/// A loop under way: an index into StepState::loops.
struct ChildLoop {
  uint32_t frame = 0;
  uint32_t loop = 0;
};

/// One iteration of a frame. Nodes and slots are counted within the frame.
struct Iteration {
  uint32_t first_node = 0;                      // of the frame
  int32_t* pending = nullptr;                   // dependencies left, by node; of a Merge see FramePlan::counts
  int32_t* uses = nullptr;                      // readers left, by slot
  std::vector<Tensor, InLines<Tensor>> values;  // by slot
  // With control flow:
  int32_t* dead = nullptr;          // by node: whether it will not run; of a waiting Merge, how many inputs are dead
  std::vector<ChildLoop> children;  // loops under way that were entered from here, by frame
  // Of a loop:
  uint32_t frame = 0;        // index into PartitionPlan::frames
  uint32_t loop = 0;         // index into StepState::loops
  uint32_t number = 0;       // 0, 1, 2, ... in its loop
  uint32_t outstanding = 0;  // nodes ready or waiting for an answer or another device, and children
  uint64_t serial = 0;       // of the loop whose invariants it holds
  bool in_order = false;     // as of its loop

  /// Makes the counts and the slots, with the constants in theirs.
  void make_room(const FramePlan& plan) {
    counts_.resize(plan.counts.size());
    pending = counts_.data();
    uses = pending + plan.num_nodes;
    dead = uses + plan.num_slots;
    values.resize(plan.num_slots);
    for (const auto& [slot, value] : plan.constants) values[slot] = *value;
  }
  void begin(const FramePlan& plan) { std::ranges::copy(plan.counts, counts_.begin()); }
  /// What a node that will be done at once hands on of an input: the tensor itself where it is the last reader.
  Tensor take(uint32_t slot) { return uses[slot] == 1 ? std::move(values[slot]) : values[slot]; }
  /// After a node has run: lets go of the inputs whose last reader it was, and of the outputs that nobody reads.
  void let_go(const PlanNode& node, const uint32_t* inputs) {
    for (uint32_t i = 0; i < node.num_inputs; ++i)
      if (--uses[inputs[i]] == 0) values[inputs[i]].reset();
    for (uint32_t i = node.first_output; i < node.first_output + node.num_outputs; ++i)
      if (uses[i] == 0) values[i].reset();
  }
  /// Where the loop of that frame is among the children, or would be.
  std::vector<ChildLoop>::iterator child(uint32_t loop_frame) {
    return std::ranges::lower_bound(children, loop_frame, {}, &ChildLoop::frame);
  }
  /// Lets go of what is left but what the next iteration of the loop will hold as well.
  void clear(const FramePlan& plan) { clear(0, plan.num_values); }
  void clear_invariants(const FramePlan& plan) { clear(plan.num_values, plan.num_values + plan.num_invariants); }

 private:
  std::vector<int32_t> counts_;

  void clear(uint32_t begin, uint32_t end) {
    for (uint32_t i = begin; i < end; ++i)
      if (values[i].defined()) values[i] = Tensor();
  }
};

/// A loop under way.
struct Loop {
  struct Value {
    uint32_t node = 0;
    Tensor tensor;
    bool dead = false;
  };
  uint64_t serial = 0;  // no other loop of the step has it
  uint32_t frame = 0;
  uint32_t parent = 0;               // the iteration that it was entered from
  uint32_t enters = 0;               // Enter nodes still to come
  uint32_t begun = 0;                // iterations
  std::deque<uint32_t> iterations;   // alive, oldest first
  std::vector<Value> invariants;     // what each iteration gets
  std::vector<Value> next;           // waits until one more iteration may live
  std::vector<uint32_t> dead_nexts;  // NextIteration nodes of the newest iteration that are dead
  std::vector<uint32_t> exited;      // Exit nodes that have lived
  // Of one that is carried out in its order (FramePlan::order), with a single iteration, used again and again:
  bool in_order = false;
  bool goes_on = false;           // another iteration comes after this one
  uint32_t at = 0;                // the next of LoopOrder::nodes
  std::vector<uint32_t> entered;  // Enter nodes that have come
};

enum class Mark : uint8_t { kNotAsked, kAsked, kPassed };

/// Work of a node that a device runs on with, and how long it takes there.
struct TimedNode {
  uint32_t node = 0;
  double output_bytes = 0;
  std::shared_ptr<WorkTimer> timer;           // until it is read
  int64_t asked_ns = 0;                       // the timer's
  std::optional<double> ns = {};              // what it took
  std::optional<double> after_first_ns = {};  // when it began
};

struct StepState {
  StepRef call;
  const PartitionPlan* plan = nullptr;
  std::vector<std::unique_ptr<Iteration>> iterations;  // [0]: the step's own
  std::vector<std::unique_ptr<Loop>> loops;
  std::vector<std::vector<uint32_t>> spare_iterations;  // by frame
  std::vector<uint32_t> spare_loops;
  uint64_t loops_entered = 0;
  /// What came before its iteration began, by the frame and ReadyTensor::iterations.
  std::map<std::pair<uint32_t, std::vector<uint32_t>>, std::vector<ReadyTensor>> early;
  ReadyQueue ready;                // cheap nodes, run first
  std::vector<Ready> heavy;        // expensive nodes, last in first out; or else see `ordered`
  uint32_t left = 0;               // nodes of the step's own frame that are not done, and loops entered from there
  uint32_t unanswered = 0;         // requests to resources, and a simulated node at work
  std::vector<uint32_t> blocking;  // nodes whose kernels may block and have not answered; a step that stops leaves them
  uint32_t input_unanswered = 0;   // of them for input
  bool ordered = false;            // `heavy` is a heap of all that compute: by priority, then as in the plan
  bool stopped = false;            // failed: nothing more fires
  Mark mark = Mark::kNotAsked;     // of a device that runs on: whether all that it has run of the step is done
  /// What waits to be looked at for NaN and infinities, by node and iteration: which output is at the host.
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> checked;
  bool held = false;    // has sent more than a task takes now: nothing more fires until Executor::may_send()
  bool timed = false;   // every node of this step is timed, but in loops only the first times
  bool timing = false;  // so is the one at work
  /// How often Executor::favoured() has looked and something could fire, and nothing has since.
  uint32_t passed_over = 0;
  /// The greatest priority of the nodes that have run out of `heavy` since then; nothing: none has.
  std::optional<int> has_run_by = {};
  // Of a device that runs on:
  std::vector<TimedNode> timers;  // of nodes that are timed
  size_t timers_read = 0;         // so many of them from the first on have been read
  std::shared_ptr<WorkTimer> first_timer;
  std::vector<uint32_t> firings;  // by node that computes, while they are counted; else empty
};

}  // namespace troupe
