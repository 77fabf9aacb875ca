// SPDX-License-Identifier: Apache-2.0
// Executor: fires the nodes of one device. A plain class: its device actor calls it, one call at a time, and carries
// out what it puts into its Outbox.
//
// Invariants:
//  1. A node fires when its count of dependencies reaches zero, once in each iteration of its frame.
//  2. A value lives in its slot until the last node that reads it has run.
//  3. A partition reports partition_done() once: when all its nodes are done, or, after a failure, when no request to a
//     resource is unanswered. So when a step's caller hears of the end, nothing of the step is under way but kernels
//     that may block: nobody can tell how long they take, so a step that failed does not wait for them. They own what
//     they read, and their answers are dropped.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "devices/device.h"
#include "devices/exchange.h"
#include "devices/step_state.h"
#include "devices/team.h"

namespace troupe {

/// Where an executor's messages go. Its device actor implements it; tests record.
class Outbox {
 public:
  virtual ~Outbox() = default;
  /// To another device's executor: tensors_ready().
  virtual void send_tensors(uint32_t device, std::vector<ReadyTensor> tensors) = 0;
  /// A request of step `of`; an error if there is no such resource, or if the step has failed by the time that it is
  /// found: it may have been made after that. The answer comes by answered(), even if at once.
  virtual Status use_resource(const StepCall& of, const ResourceRef& handle, ResourceUse&& use) = 0;
  /// Has the kernel run elsewhere. The answer comes by answered(), perhaps after the end of the step.
  virtual void run_blocking(BlockingUse use) = 0;
  /// Sends on what use_resource has gathered.
  virtual void flush_uses() = 0;
  /// Tells the hosts of unanswered requests of a step to drop them.
  virtual void cancel_uses(int64_t step) = 0;
  /// To the other devices of a failed step: abort().
  virtual void abort_elsewhere(const StepRef& call) = 0;
  virtual int64_t now_ns() = 0;
  /// Whether messages wait: the executor then ends its turn between two expensive nodes.
  virtual bool messages_wait() { return false; }
};

class Executor {
 public:
  /// Counters that any thread may read.
  struct Counters {
    std::atomic<int64_t> steps{0}, nodes{0}, busy_ns{0}, input_wait_ns{0};
  };

  /// `device` lives as long as it.
  Executor(uint32_t index, Device& device, Outbox& outbox, Counters& counters);
  ~Executor();

  /// Begins this device's part of a step.
  void start(StepRef call);
  void tensors_ready(std::vector<ReadyTensor> tensors);
  void answered(std::vector<ResourceAnswer> answers);
  /// The time that the node at work takes (Device::run) has passed.
  void work_ended();
  bool at_work() const { return work_.has_value(); }
  /// When it will have; at_work().
  int64_t work_until_ns() const { return work_->begin_ns + work_->ran.ns; }
  /// The step failed or was cancelled elsewhere.
  void abort(const StepRef& call);
  /// Other tasks take what is sent again: StepSink::sent().
  void may_send();

  /// Whose thread run() has: one that is there to run devices, or one with other duties, which fires only what was seen
  /// to be cheap, on that thread alone.
  enum class Turn : uint8_t { kOwn, kLent };
  /// Fires what is ready for at most about `quantum_ns`; true when something is left to fire.
  bool run(int64_t quantum_ns, Turn turn = Turn::kOwn);
  bool idle() const { return active_.empty() && parked_.empty(); }
  /// Whether `messages` that have come since the last run() are too few for one more: with many steps at hand a run()
  /// looks at all of them, and so is for several messages.
  bool may_wait(size_t messages) const { return messages < active_.size() / kMostActive; }

 private:
  /// Nodes fired in one run() at most: on a simulated device the clock stands still.
  static constexpr int64_t kMostFired = 1 << 20;
  /// Steps kept in active_ at most, beside those that can go on.
  static constexpr size_t kMostActive = 64;
  /// Nodes between two looks at the clock.
  static constexpr int kClockEvery = 64;
  /// Firings of a node of a loop that are timed in a step, where not all are.
  static constexpr uint32_t kTimedFirings = 4;
  /// favoured() looks at all steps once in that time; of those that two looks have passed over one gets its turn.
  static constexpr int64_t kPatienceNs = 50'000'000, kFavourNs = 20'000'000;
  /// What a run() takes for each active step beside firing nodes.
  static constexpr int64_t kLookNs = 400;

  /// Of a step under way here, which is active then; nullptr: there is none.
  StepState* find(int64_t step);
  StepState* find_active(int64_t step);
  /// Makes a step active.
  StepState& activate(std::unique_ptr<StepState> state);
  /// Puts the steps apart that wait for an answer or another device, so that each message need not look at all.
  void park();
  /// The other way round, of all.
  void unpark();
  std::unique_ptr<StepState> make_state(StepRef call, const PartitionPlan& plan);
  void push(StepState& s, Ready at) {
    if (at.iteration > 0) ++s.iterations[at.iteration]->outstanding;
    const bool cheap = s.plan->cost_ns[at.node].load(std::memory_order_relaxed) <= PartitionPlan::kHeavyNs;
    if (cheap && !s.ordered) [[likely]]
      s.ready.push(at);
    else push_apart(s, at);
  }
  /// A node that is expensive, or of a step whose nodes have an order.
  static void push_apart(StepState& s, Ready at);
  /// Of the nodes of `s` that wait in `heavy`, the one to run first; the second takes it out.
  static Ready first_heavy(const StepState& s) { return s.ordered ? s.heavy.front() : s.heavy.back(); }
  static Ready pop_heavy(StepState& s);
  static bool can_fire(const StepState& s) { return !s.stopped && !s.held && (!s.ready.empty() || !s.heavy.empty()); }
  /// Of the heavy node to run first, which there is; 0 without any.
  static int next_priority(const StepState& s);
  /// What favoured() goes by: the priority of the heavy node to run first, as far as it was asked for. Where the next
  /// is not known, the greatest of those that have run since it looked last, or of the plan where none has.
  static int urgency(const StepState& s);
  /// The step to go on with before all others, or nullptr: the cheap nodes of others, and older steps, may not keep a
  /// step waiting for good, as loops that go on for ever would. Only a greater priority may.
  StepState* favoured(int64_t now);
  /// The step to go on with: one with cheap nodes, in turn, else that of the heavy node to run first; nullptr: none.
  StepState* next_step(Turn turn = Turn::kOwn);
  /// Of many active steps, what next_step() of one run() finds without looking at all again: within a run() nothing
  /// changes but the step that goes on.
  struct Choices {
    std::vector<StepState*> cheap;  // steps with cheap nodes, in turn
    size_t next = 0;                // of them
    /// Steps that may run a heavy node now: a heap, the one to go on with first.
    struct Heavy {
      int priority;
      int64_t step;
      StepState* state;
      bool operator<(const Heavy& other) const {
        return priority != other.priority ? priority < other.priority : step > other.step;
      }
    };
    std::vector<Heavy> heavy;
  };
  void gather(Turn turn, const StepState* but);
  /// Whether `s` is one that goes on with a heavy node; takes it in then, at the end of the heap.
  bool gather_heavy(StepState& s, Turn turn);
  /// The same as next_step(); `last`: what it gave before, unless that has ended.
  StepState* next_choice(StepState* last, Turn turn);
  /// Whether the next node of `s`, which has one, may be fired in such a turn.
  bool may_fire(const StepState& s, Turn turn) const;
  /// Fires the cheap nodes of `s` until `until_ns`, or else one heavy node. Returns the time.
  int64_t run_step(StepState& s, int64_t now_ns, int64_t until_ns, int64_t& fired, Turn turn);
  void trace(const StepState& s, uint32_t node, TraceEvent::Kind kind, int64_t begin_ns, int64_t end_ns) const;
  /// Fires one node, true if its successors may go on at once.
  bool fire(StepState& s, Ready at);
  /// Runs the kernel of a node here and looks at what it puts out; false: the step has failed.
  bool compute(StepState& s, Iteration& in, const PlanNode& node, uint32_t index, const uint32_t* inputs);
  /// Of a step that is timed: whether this firing is.
  static bool is_timed(const StepState& s, Ready at);
  /// Whether a lent thread may run the kernel of a node.
  bool is_for_lent_thread(const StepState& s, uint32_t node) const;
  /// Has the device run a node.
  bool fire_apart(StepState& s, Ready at, const PlanNode& node);
  /// What is to be in another memory. Not done where it comes by an answer.
  bool fire_copy(StepState& s, Ready at, const PlanNode& node);
  /// Asks the device for a mark, whose answer is the node's end.
  bool fire_wait(StepState& s, Ready at);
  /// Asks for the next output, from `first` on, of a node whose values are not in the host's memory, so that they can
  /// be looked at there. False: there was none left.
  bool look_at_outputs(StepState& s, Ready at, uint32_t first);
  void output_is_here(StepState& s, Ready at, const Tensor& value);
  bool fire_resource(StepState& s, Ready at, const PlanNode& node);
  void fire_blocking(StepState& s, Ready at, const PlanNode& node);
  void send(StepState& s, Ready at, const PlanNode& node, Tensor value, bool dead);
  /// A fetch of a partial run is there.
  void hand_out(StepState& s, uint32_t fetch, Tensor value, bool dead);
  void complete(StepState& s, Ready at);
  void receive(StepState& s, ReadyTensor tensor);

  // Control flow (executor_control_flow.cpp).
  /// The output that lives, of a Switch with a boolean or a _SwitchN with an index.
  static Result<int> taken_output(const Tensor& by, int outputs);
  /// Carries out a dead node, or one of the ops of control flow, to its end.
  void fire_control(StepState& s, Ready at);
  /// Which successors are carried out as soon as nothing is left for them to wait for, rather than after what is ready:
  /// ops of control flow, which cost less than the way through the queue. These tell others by the queue, so that
  /// chains of them need no more of the stack. A step that is timed fires each node on its own.
  enum class AtOnce : uint8_t { kNone, kMerges, kControl };
  /// Releases inputs and tells successors; of a Switch only those of output `taken` live.
  void complete_control(StepState& s, Ready at, bool dead, int taken = -1, AtOnce at_once = AtOnce::kNone);
  void tell_successors(StepState& s, Ready at, uint32_t iteration, bool dead, int taken,
                       AtOnce at_once = AtOnce::kNone);
  /// All dependencies of a node with a dead input are met.
  void die(StepState& s, Ready at);
  /// One dependency of a Merge is met, by a node that is dead or not; whether it was the last that it waited for.
  static bool arrive_at_merge(StepState& s, Ready at, bool control, bool dead);
  void enter(StepState& s, Ready at, bool dead);
  void exit(StepState& s, Ready at);
  void next_iteration(StepState& s, Ready at, AtOnce at_once = AtOnce::kNone);
  /// Puts a value into the output of `node` in an iteration and tells those who wait for it there.
  void deliver(StepState& s, uint32_t node, uint32_t iteration, Tensor value, bool dead,
               AtOnce at_once = AtOnce::kNone);
  void add_iteration(StepState& s, uint32_t loop);
  /// Of one that is not the newest.
  static uint32_t iteration_after(const StepState& s, uint32_t iteration);
  /// The numbers of the iterations around, outermost first, and its own; none of the step itself.
  static std::vector<uint32_t> path_of(const StepState& s, uint32_t iteration);
  /// The iteration of `frame` with that path; empty: it has not begun.
  static std::optional<uint32_t> find_iteration(const StepState& s, uint32_t frame, std::span<const uint32_t> path);
  /// Keeps a tensor that came before its iteration, or receives it; `frame` is that of the Recv.
  void receive_in_loop(StepState& s, ReadyTensor tensor);
  /// False for what has come before, which it drops: another process may say things twice.
  bool put(StepState& s, uint32_t iteration, ReadyTensor tensor);
  // Loops in their order (executor_in_order.cpp).
  bool goes_in_order(const StepState& s, uint32_t frame) const;
  /// A live value has come into one; with the last of them it is ready.
  void enter_in_order(StepState& s, uint32_t enter, uint32_t loop, Tensor value);
  /// A dead one comes: all that has come is told as in any other loop.
  void leave_order(StepState& s, uint32_t loop);
  /// Goes on with the loop of `at`, which is ready, until the time is over, what comes next is not for this turn, or
  /// the loop ends. Returns the time.
  int64_t run_in_order(StepState& s, Ready at, int64_t now_ns, int64_t until_ns, int64_t& fired, Turn turn);
  /// Hands values on by the Switches. Whether another iteration comes; nothing: the step has failed.
  std::optional<bool> decide_in_order(StepState& s, Iteration& in, const LoopOrder& order);
  static void merge_in_order(Iteration& in, const LoopOrder& order, bool first);
  static void hand_on_in_order(const PartitionPlan& plan, Iteration& in, const LoopOrder& order);
  void exit_in_order(StepState& s, Iteration& in);
  /// Runs one of its nodes; false: the step has failed.
  bool compute_in_order(StepState& s, Iteration& in, const LoopOrder& order, uint32_t node, int64_t& now_ns);

  /// One thing less is under way in the iteration; ends it, and its loop, if that was the last.
  void settle(StepState& s, uint32_t iteration) {
    if (--s.iterations[iteration]->outstanding == 0) end_iterations(s, s.iterations[iteration]->loop);
  }
  void end_iterations(StepState& s, uint32_t loop);
  void end_loop(StepState& s, uint32_t loop);

  /// A timer for a node of a step that is timed, of a device that runs on; nullptr: none.
  std::shared_ptr<WorkTimer> timer_for(StepState& s) const;
  /// Of what is done by now, takes the times and lets go of the timers.
  static void read_timers(StepState& s);
  /// To be read when the work is done.
  static void keep_timer(StepState& s, uint32_t node, std::shared_ptr<WorkTimer> timer, double output_bytes);
  /// Of a step all of whose work is done: the times go to what is measured, and to the trace.
  void take_times(StepState& s) const;

  Status check_numerics(const Iteration& in, const PlanNode& node) const;
  void fail(StepState& s, const Node* node, Error error);
  void stop(StepState& s);
  /// Tells the step of a node that had not ended when it stopped.
  void waited_for(const StepState& s, uint32_t node) const;
  void flush();
  /// Ends the state if nothing is left of it; true if so.
  bool finish_if_done(StepState& s);
  /// Whether all that the device has run of the step is done; asks for it.
  bool has_run(StepState& s);

  /// Timers of a step that are not read, at most: events of a card are dearer than memory.
  static constexpr size_t kMostTimers = 4096;
  /// In place of a node, in the tag of what asks for a step's mark.
  static constexpr uint32_t kMark = UINT32_MAX;

  const uint32_t index_;
  Device& device_;
  const DeviceInfo& info_;
  Team team_{info_.threads};
  Outbox& outbox_;
  Counters& counters_;
  std::deque<std::unique_ptr<StepState>> active_;                   // few; by step, the oldest first
  std::unordered_map<int64_t, std::unique_ptr<StepState>> parked_;  // wait, and nothing of them can run; by step
  size_t parked_for_input_ = 0, parked_for_other_ = 0;              // of them those that wait so for an answer
  std::unordered_map<int64_t, std::vector<ReadyTensor>> early_;     // tensors that came before their step
  std::unordered_map<uint32_t, std::vector<ReadyTensor>> sends_;    // gathered, by device
  /// The node that was run, and whose time has not passed.
  struct Work {
    int64_t step;
    Ready at;
    Ran ran;
    int64_t begin_ns;
  };
  std::optional<Work> work_;
  Choices choices_;            // of a run() with many active steps
  int64_t fired_at_once_ = 0;  // not through a queue, and not yet counted
  size_t turn_ = 0;            // index into active_ of the step whose cheap nodes come first
  int64_t favoured_ = -1;      // step
  int64_t favoured_until_ns_ = 0, look_again_ns_ = 0;
  int64_t refusals_ = 0;  // of the device's allocator that an error has told of
  bool uses_gathered_ = false;
  std::vector<std::vector<Tensor>> spare_lists_;  // empty, of answers, for the inputs of requests
  int64_t waiting_since_ = 0;                     // for input, with nothing else to do; 0: not
};

}  // namespace troupe
