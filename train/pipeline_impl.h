// SPDX-License-Identifier: Apache-2.0
// Pipeline::Impl: the loop of a pipeline, in the thread of who calls run(), and the callbacks of its steps. What the
// user calls and the loop are in pipeline.cpp, snapshots and what happens when tasks are lost in pipeline_recovery.cpp.
#pragma once
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "train/batch_source.h"
#include "train/loss_record.h"
#include "train/pipeline_graph.h"
#include "train/snapshot_interval.h"
#include "train/task_watch.h"
#include "troupe/guarded.h"
#include "troupe/pipeline.h"

namespace troupe::nn {

class Pipeline::Impl {
 public:
  using Prepared = std::shared_ptr<Session::Prepared>;

  Impl(Engine& engine, PipelineOptions options)
      : engine_(engine), options_(std::move(options)), graph_(engine.ops()),
        variables_(options_.container, options_.seed) {}

  ~Impl();

  Status build(const ModelFn& model, const Dataset& batches, std::source_location where);

  Status initialise();
  Status assign_initial();

  Status restore(const Snapshot& snapshot);

  Result<Snapshot> snapshot();

  Result<RunSummary> run(int64_t batches, const std::function<void(const StepReport&)>& on_step);

  /// Until as many batches were trained on as runs asked for; goes back where tasks are lost on the way.
  Status train(const std::function<void(const StepReport&)>& on_step, RunSummary& summary);

  void train_once(const std::function<void(const StepReport&)>& on_step, RunSummary& summary);
  /// Waits for the batches under way, and reports them.
  void drain(const std::function<void(const StepReport&)>& on_step);

  void stop();

  int64_t step() const {
    const std::lock_guard lock(mutex_);
    return first_step_ + updates();
  }

  Result<Metrics> evaluate(const Dataset& batches);

  Engine& engine_;
  PipelineOptions options_;
  Graph graph_;
  Variables variables_;
  PipelineGraph built_;

 private:
  /// A batch under way.
  struct Batch {
    int left = 0;  // micro-batches
    double loss = 0, accuracy = 0;
    int64_t examples = 0;
  };

  Status complete_options();

  Status check_size(int64_t rows) const {
    if (rows > 0 && rows % options_.micro_batches == 0) return {};
    return invalid_argument("pipeline '{}': a batch of {} rows cannot be cut into {} micro-batches", options_.name,
                            rows, options_.micro_batches);
  }

  /// Two pipelines of one name would count each other's events and add up each other's gradients.
  Status claim_name();

  std::string claims_container() const { return events_container(options_.name) + "/claims"; }
  void reset_containers() {
    engine_.reset_container(claims_container());
    reset_steps();
  }
  void reset_steps() {
    engine_.reset_container(events_container(options_.name));
    for (size_t k = 0; k < built_.stages.size(); ++k)
      engine_.reset_container(sums_container(options_.name, static_cast<int>(k)));
  }

  template <class F> void wait_until(F&& condition) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, condition);
  }

  /// Has those that wait for the next batch look what has happened; not under mutex_.
  void interrupt();

  /// Of the dataset; nothing if the run is to end before it comes. Reports batches that are done meanwhile.
  std::optional<BatchSource::Batch> next_batch(const std::function<void(const StepReport&)>& on_step);

  // -- lost tasks ----------------------------------------------------------------------------------------------------

  /// What training goes back to: a snapshot, or else the initial values, and how many batches came before it.
  struct Kept {
    std::optional<Snapshot> snapshot = {};
    int64_t step = 0;
    int64_t batches = 0;
  };

  /// Whether the caller is within run() or catch_up(), or another thread within run(); under mutex_.
  bool trains() const { return running_ || catching_up_ == std::this_thread::get_id(); }
  bool others_catch_up() const { return catching_up_ != std::thread::id() && !trains(); }
  void wait_for_others(std::unique_lock<std::mutex>& lock) {
    changed_.wait(lock, [&] { return !others_catch_up(); });
  }
  /// Whether training is to end; under mutex_.
  bool ends() const { return stop_ && heeds_stop_; }
  /// The error of a call `what` amid a run, that is in on_step.
  Status between_runs(const char* what);
  /// Carries `assign` out, which gives variables their first values.
  Status begin(const std::function<Status()>& assign) {
    return watch_ && !source_ ? watch_->begin(mutex_, changed_, options_.recovery.wait, assign) : assign();
  }

  void watch_tasks();
  std::unique_ptr<TaskWatch> take_watch() {
    const std::lock_guard lock(mutex_);
    return std::move(watch_);
  }
  /// A task that is lost ends the steps.
  void look_after_tasks();
  /// Under mutex_: whether an error comes of a lost task that can be got over.
  bool may_be_lost(const Error& error) const {
    return watch_ && kept_ && !gave_up_ && watch_->explains(error, watch_->all());
  }
  bool may_be_lost() const { return error_ && may_be_lost(*error_); }
  /// Under mutex_: a loss that is found from now on is another one than the last.
  void begin_wait() { record_.renew(Clock::now()); }

  /// Lets the batches under way end and keeps what the variables are then.
  void keep_snapshot(const std::function<void(const StepReport&)>& on_step);

  /// Waits for the lost tasks and goes back to what is kept; no step is under way. False: a stop came before. What
  /// lasts too long or fails otherwise is then error_, and not of a lost task.
  bool go_back(RunSummary& summary);
  /// Between two runs, and no other thread trains: makes the updates that were lost again.
  Status catch_up(std::unique_lock<std::mutex>& lock, bool heed_stop, RunSummary& summary);
  void tell(const TaskReport& report) {
    if (!options_.recovery.on_task || !faults_.ok()) return;
    faults_ = guarded_call([&] { options_.recovery.on_task(report); });
    if (!faults_.ok()) stop();
  }
  /// Gives variables, counters and the dataset what they had.
  Status assign(const Kept& kept);
  /// Batches that were begun.
  int64_t position() const { return batches_before_ + batches_started_; }

  bool may_start() const {
    return static_cast<int>(under_way_.size()) < (keeps_next_ ? 1 : options_.batches_in_flight);
  }
  /// Whether a snapshot is due for the update that follows a loss.
  bool keeps_next() const {
    const std::lock_guard lock(mutex_);
    return keeps_next_ && first_step_ + updates() > kept_->step;
  }
  int64_t updates() const { return options_.asynchronous ? micro_batches_done_ : batches_done_; }

  void fail(const Error& error);

  void report(const std::function<void(const StepReport&)>& on_step);

  /// Starts the steps of one batch.
  Status start(const Element& element);

  /// What the i-th micro-batch of the next batch is fed before its components.
  std::vector<Tensor> numbers(int i) const;

  void done(int64_t number, int64_t rows, RunResult& result);

  std::optional<Dataset> batches_;
  Passes passes_;
  std::vector<Prepared> steps_;  // by micro-batch of a batch
  Prepared test_;
  CancelToken all_steps_;
  bool claimed_ = false;  // the name
  int64_t batches_started_ = 0;
  int64_t batches_before_ = 0;  // the first of those
  int64_t goal_ = 0;            // of position()
  /// After a loss, so that those that come faster than snapshots do not keep a run from its end: the next update is
  /// made alone, and kept. Of who runs.
  bool keeps_next_ = false;
  Clock::time_point next_kept_ = {};
  int64_t first_step_ = 0;
  Status faults_;  // of the run's on_step

  mutable std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::shared_ptr<BatchSource> source_;  // of the runs; set by the first
  std::shared_ptr<BatchSource> tests_;   // of the evaluation in progress
  std::map<int64_t, Batch> under_way_;
  std::deque<StepReport> reports_;
  std::optional<Error> error_;
  int64_t batches_done_ = 0, micro_batches_done_ = 0;
  std::optional<Kept> kept_;
  bool going_back_ = false, gave_up_ = false;
  bool running_ = false;              // a thread is in run()
  RunSummary* summary_ = nullptr;     // of that
  RunSummary between_;                // losses that the next run is to tell of
  std::thread::id catching_up_ = {};  // the thread that is in catch_up()
  bool heeds_stop_ = true;            // what trains does
  LossRecord record_;
  int in_flight_ = 0;  // steps whose callback has not ended
  bool stop_ = false;
  int snapshots_ = 0;           // calls of snapshot() at work: no batch begins
  bool may_begin_ = false;      // a batch waits for those
  std::shared_ptr<void> hold_;  // has the clock of simulated devices stand still

 public:
  std::unique_ptr<Session> session_;
  std::unique_ptr<TaskWatch> watch_;  // none: nothing can be lost, or is to be got over
};

}  // namespace troupe::nn
