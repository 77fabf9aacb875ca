// SPDX-License-Identifier: Apache-2.0
// Trainer::Impl: the loops of a trainer, continuations that start the next step of the input, of each replica and of
// the update. What the user calls is in trainer.cpp, the loops in trainer_loops.cpp, snapshots in
// trainer_snapshots.cpp, and what happens when tasks are lost in trainer_recovery.cpp.
//
// Invariants, under mutex_:
// 1. started_ - done_ updates are in flight; started_ <= target_, but for a target that stop() lowered to started_.
// 2. A replica computes only while done_ < target_, so between two runs nothing changes a variable.
// 3. In kAsync with max_staleness s a replica computes only while it has made at most s updates more than the slowest.
// 4. In kLocal done_ updates are averaged; replicas compute towards round_end(), and the average begins when all are
//    there or out of data, so that no replica computes meanwhile, and what each computes depends on no other's speed.
// 5. In kHybrid the update of step s happens exactly if pushes_[s] reaches N - k: accumulators drop all others.
// 6. A replica's step begins when its batches are in their queue, so that no step in flight waits for input: what
//    stop() waits for is computing.
// 7. A snapshot is taken between two updates: while taking_, nothing that changes variables begins. Only kAsync, which
//    has no such moment, leaves the cut to the engine.
// 8. A replica has at most kMostReports reports that on_step has not taken: with so many it begins no step. Only those
//    of kLocal go on to the next average where a snapshot waits for that, since on_step may be what waits for it.
// 9. Once broken_, since a task was lost that all need, nothing begins; when all has ended, a thread of the user's that
//    waits in run(), snapshot() or evaluate() goes back to kept_ (recover()), and training begins anew from there.
#pragma once
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>

#include "train/batch_source.h"
#include "train/loss_record.h"
#include "train/snapshot_interval.h"
#include "train/task_watch.h"
#include "train/tasks.h"
#include "train/towers.h"

namespace troupe::nn {

/// The sum of two counts, or the largest there is.
inline int64_t sum_of(int64_t a, int64_t b) { return b > INT64_MAX - a ? INT64_MAX : a + b; }

class Trainer::Impl {
 public:
  using Prepared = std::shared_ptr<Session::Prepared>;
  using Launches = std::vector<std::function<void()>>;
  /// Nothing: it is to be asked for again. Empty where nobody is told: what is kept to go back to.
  using Taken = std::function<void(std::optional<Result<Snapshot>>)>;
  enum class Phase { kReady, kComputing, kAwaitingToken, kAside };
  struct Replica {
    Prepared step;
    Phase phase = Phase::kReady;
    int64_t local_step = -1;  // kHybrid; -1: the current one
    int64_t updates = 0;      // made by it
    bool ended = false;       // kLocal: its batches have
    int64_t taken = 0;        // batches, by its steps
    int reports = 0;          // of its steps that on_step has not taken
    std::string task = {};    // of its device
    std::string why_aside = {};
    bool told_aside = false;  // when it is known that its task is lost: else others may be
    int64_t batches_lost = 0;
    Clock::time_point aside_since = {}, retry_at = {};
    bool token_asked = false;  // kHybrid
    Clock::time_point starved_since = {};
    int64_t input_wait_ns = 0;
  };

  /// What training goes back to: a snapshot, or else the initial values, and how many batches came before it.
  struct Kept {
    std::optional<Snapshot> snapshot = {};
    int64_t step = 0;
    int64_t batches = 0;
    int64_t lost = 0;  // of these, that no update has seen
  };

  Impl(Engine& engine, TrainerOptions options);
  ~Impl();
  Status build(const ModelFn& model, const Dataset& batches, std::source_location where);

  Status initialise();
  Status restore(const Snapshot& snapshot);
  Result<RunSummary> run(int64_t updates, const std::function<void(const StepReport&)>& on_step);
  void stop();
  Result<Snapshot> snapshot(const std::stop_token& hurry);
  Result<Metrics> evaluate(const Dataset& batches);
  /// The updates made so far, for those without the lock: between two runs what they made, also where some of it must
  /// be made again.
  int64_t step_made() const {
    std::lock_guard lock(mutex_);
    return first_step_ + (running_ ? done_ : target_);
  }

  Engine& engine_;
  const Tasks tasks_;
  const TrainerOptions options_;
  Graph graph_;
  Variables variables_;
  Towers towers_;

  mutable std::mutex mutex_;

 private:
  bool hybrid() const { return options_.mode == ReplicaMode::kHybrid; }
  bool local() const { return options_.mode == ReplicaMode::kLocal; }
  /// Whether replicas may be left out while others go on; they share a queue then.
  bool apart() const { return options_.mode == ReplicaMode::kAsync || hybrid(); }
  /// The options with the tasks of their devices.
  TrainerOptions complete(TrainerOptions o) const;
  /// All that is on the engine for this trainer alone.
  void give_back();

  // -- the loops, under mutex_ ---------------------------------------------------------------------------------------

  int64_t step() const { return first_step_ + done_; }
  bool idle() const {
    if (updating_ || averaging_ || computing_ > 0) return false;
    return error_ || (!broken_ && (done_ >= target_ || ended_));
  }
  /// Whether nothing may begin any more, at least for now.
  bool halted() const { return error_ || broken_ || closing_; }
  /// Whether the run in progress is to end. A stop that comes between two runs is for the next one: what makes lost
  /// updates again does not heed it.
  bool is_to_stop() const { return running_ && stop_; }
  bool may_update() const { return !halted() && !ended_ && !stopping_ && !is_to_stop() && started_ < target_; }
  bool may_compute(const Replica& r) const;
  /// The fewest updates that a replica has made, of those that are not aside.
  int64_t slowest() const;
  /// kLocal: where the next average is.
  int64_t round_end() const { return std::min(sum_of(done_, options_.local_steps), target_); }
  /// kHybrid: whether the update at work lacks gradients that no replica is about to push.
  bool update_waits() const {
    if (!updating_ || computing_ > 0 || halted()) return false;
    const auto pushed = pushes_.find(step());
    return pushed == pushes_.end() || pushed->second < needed();
  }
  /// kHybrid: whether a step that failed as its task was lost may have pushed some of the gradients of the update at
  /// work, or all. So that may have been made for some variables, and must be made for the others too.
  bool in_doubt() const { return doubtful_ >= step(); }
  /// kHybrid: gradients that wait in accumulators for an update to come. They go with their task, and no snapshot has
  /// them.
  int64_t waiting_pushes() const {
    int64_t out = 0;
    for (auto at = pushes_.lower_bound(step()); at != pushes_.end(); ++at) out += at->second;
    return out;
  }
  /// kHybrid: the replicas whose gradients an update takes.
  int needed() const { return static_cast<int>(replicas_.size()) - options_.backups; }
  bool any_ended() const { return std::ranges::any_of(replicas_, &Replica::ended); }
  /// Whether the next step of a replica has its batches in the queues.
  bool has_input(const Replica& r) const;
  void take_input(Replica& r);
  /// Whether the queue is to be asked whether it has what counts do not tell.
  bool in_doubt_of_input() const { return miscounted_ && !counted_; }

  /// Collects the steps that may start now; they are launched once the mutex is free.
  void schedule(Launches& launches);
  using Done = std::function<void(RunResult, Launches&)>;
  void launch(Launches& launches, const Prepared& prepared, std::vector<Tensor> feeds, const RunOptions& options,
              Done done);
  /// What every step's callback does, without the lock: takes the result in, then starts what may start.
  void finish(const Done& done, RunResult result);
  /// Keeps the first error; schedule() cancels what runs.
  void fail(const Error& error);

  /// The input is one loop, so that batches keep their order: never two of its steps at once.
  void enqueue_next(size_t queue, Launches& launches);
  /// Asks the queue that replicas share how many batches it has. None of its steps is under way.
  void count_input(Launches& launches);
  void input_counted(RunResult& result, bool alone, Launches& launches);
  /// So many batches, of steps that failed with their tasks, were not taken by these, and so are not lost.
  void not_taken(int64_t batches);
  void replica_done(int i, RunResult& result, Launches& launches);
  void ask_token(int i, Launches& launches);
  void token_done(int i, RunResult& token);
  void update_done(RunResult& result, Launches& launches);
  /// kHybrid: ends the update at work, which waits for gradients.
  void withdraw_update(Launches& launches);
  /// Averages once every replica has made the updates of the round, or all that its batches are enough for.
  void end_round(Launches& launches);
  void average_done(RunResult& result);

  // -- variables and snapshots ---------------------------------------------------------------------------------------

  /// The variables of each replica; one where they share.
  std::vector<const Variables*> containers() const;
  Status assign_initial();
  Status assign(const Snapshot& snapshot);
  /// Gives what the first replica has to the others.
  Status publish();
  Status tell_step(int64_t step) { return session_->run(set_step_, {Tensor::scalar<int64_t>(step)}).status(); }

  // Under mutex_:
  /// Whether variables are as they are after an update, and stay so while no step is launched.
  bool between_updates() const;
  /// Whether nothing may begin that changes variables: a snapshot is taken, or will be at once.
  bool held() const;
  /// Whether somebody waits for a snapshot, on_step perhaps.
  bool is_awaited() const {
    return std::ranges::any_of(wanted_, [](const Taken& taken) { return taken != nullptr; });
  }
  static void tell(const std::vector<Taken>& wanted, const std::optional<Result<Snapshot>>& snapshot) {
    for (const Taken& taken : wanted)
      if (taken) taken(snapshot);
  }
  /// Takes the snapshots that are wanted.
  void take_snapshots(Launches& launches);
  /// `keeps`: it has the first update after a loss.
  void snapshot_taken(Result<Snapshot> whole, Kept kept, bool keeps, const std::vector<Taken>& wanted,
                      Launches& launches);

  // -- lost tasks, under mutex_ --------------------------------------------------------------------------------------

  /// Tells which tasks the steps need, and which all of them do.
  void watch_tasks();
  /// The error of a call `what` amid a run, from on_step or another thread.
  Status between_runs(const char* what) const {
    if (!running_) return {};
    return make_error(Code::kFailedPrecondition, "{}: the trainer is in a run, which must end first", what);
  }
  /// Carries `assign` out, which gives variables their first values.
  Status begin(const std::function<Status()>& assign) {
    return watch_ && !input_started_ ? watch_->begin(mutex_, changed_, options_.recovery.wait, assign) : assign();
  }
  bool recovers() const { return watch_ && kept_ && !error_; }
  bool may_be_lost(const Error& error) const { return recovers() && watch_->explains(error, vital_); }
  bool may_recover() const { return broken_ && in_flight_ == 0; }

  /// All training waits for what is lost. schedule() cancels what runs.
  void lose(const Error& error);
  /// Whether a snapshot of the moment is the one that is kept.
  bool goes_on_from_kept() const {
    return broken_ && kept_->snapshot && (running_ || target_ <= kept_->step - first_step_);
  }
  /// Whether a wait is to end before what it waits for has come.
  using Ends = std::function<bool()>;
  Ends at_stop() const {
    return [this] { return stop_; };
  }
  /// Between two runs: waits until the updates that were lost are made again, or `ends`.
  void catch_up(std::unique_lock<std::mutex>& lock, const Ends& ends);
  /// A call begins that may wait for tasks. What was lost before may have come back long ago.
  void begin_wait() {
    if (!running_) asked_at_ = Clock::now();
  }
  /// Looks what has become of the tasks.
  void look_after_tasks();
  /// kAsync, kHybrid: leaves out replica `i`, whose step has failed, if no more than its own task is lost.
  bool set_aside(int i, const Error& error);
  /// Has it go on, now that its task is back.
  void take_back(Replica& r);
  /// Whether that update has been made.
  bool is_to_keep() const { return keeps_next_ && step() > kept_->step; }
  void keep_snapshot() { wanted_.emplace_back(); }
  /// When run() has something to do by itself.
  Clock::time_point next_wake() const;
  /// Does that.
  void take_care(Launches& launches);
  /// Waits for the tasks that are lost, goes back to what is kept and has training go on. A thread that may wait calls
  /// it, with the lock. After it the trainer is broken_ no more, or has error_, unless it `ends`.
  void recover(std::unique_lock<std::mutex>& lock, const Ends& ends);
  /// Gives variables, queues and the dataset what they had; not under mutex_.
  Status go_back(const Kept& kept);
  void begin_again(const Kept& kept);

  Prepared close_, count_, update_, token_, set_step_, average_;
  std::vector<Prepared> enqueue_, tests_;
  std::vector<std::string> test_tasks_;
  RunOptions run_options_;
  CancelToken all_steps_;    // cancelled by an error and by the destructor
  CancelToken update_step_;  // the same for kHybrid's update, and when it can no longer happen

  std::condition_variable changed_;
  std::vector<Replica> replicas_;
  std::map<int64_t, int> pushes_;  // gradients pushed, by local step
  int64_t doubtful_ = -1;          // the latest local step of which some may have been
  Error why_in_doubt_;
  std::deque<StepReport> reports_;
  std::optional<Error> error_;
  bool gave_up_ = false;  // that is of a task that was lost and not got over: what it had is gone
  std::optional<Dataset> batches_;
  TaskWatch::Names vital_;  // tasks without which no replica can do
  std::optional<Error> broken_;
  bool recovering_ = false;  // a thread is in recover()
  bool running_ = false;     // one is in run()
  std::optional<Kept> kept_;
  /// The next update is kept before another one begins: after a loss, so that those that come faster than snapshots do
  /// not keep a run from its end.
  bool keeps_next_ = false;
  LossRecord record_;
  Clock::time_point last_look_ = {}, taking_since_ = {};
  Clock::time_point next_kept_ = Clock::time_point::max();
  Clock::duration took_ = {};         // the last snapshot
  Clock::time_point asked_at_ = {};   // when the last call began that may wait for tasks
  int64_t position_ = 0;              // of the dataset: elements before those that are counted by filled_
  int losses_ = 0;                    // of the run
  int64_t lost_ = 0, told_lost_ = 0;  // batches that no update has seen; those that news told of
  int64_t summed_lost_ = 0;           // those that summaries of runs told of
  std::deque<TaskReport> news_;
  int64_t first_step_ = 0;
  int64_t target_ = 0, started_ = 0, done_ = 0;
  int64_t filled_ = 0, taken_ = 0;  // batches put into queues; taken by steps, in kSync counted once for all queues
  bool miscounted_ = false;         // perhaps taken_ has some that steps did not take which failed with their task
  bool counted_ = false;            // the queue was asked what it has, since filled_ or taken_ changed
  bool counting_ = false;           // it is being asked
  bool seen_ = false;               // it has a batch, whatever is counted
  bool filling_ = false;            // a step of the input is in flight
  std::vector<Taken> wanted_;       // snapshots
  bool taking_ = false;
  int computing_ = 0;     // replica steps in flight, tokens not counted
  int in_flight_ = 0;     // all steps whose callback has not ended
  bool claimed_ = false;  // the name on the engine is ours
  bool updating_ = false, averaging_ = false, input_started_ = false, ended_ = false, stop_ = false, closing_ = false,
       cancelled_ = false, input_closed_ = false;
  bool stopping_ = false;   // the run in progress was told to stop
  bool reporting_ = false;  // it has an on_step
  /// kHybrid: the update is being cancelled. A gradient that came now could be taken for some variables and not for
  /// others, so no replica begins a step.
  bool withdrawing_ = false;
  std::shared_ptr<BatchSource> evaluated_;  // of the evaluation in progress

 public:
  std::unique_ptr<Session> session_;  // before the watch, so that it goes after that
  std::unique_ptr<TaskWatch> watch_;  // none: nothing can be lost, or is to be got over
};

}  // namespace troupe::nn
