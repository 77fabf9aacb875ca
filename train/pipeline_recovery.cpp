// SPDX-License-Identifier: Apache-2.0
// Snapshots of a pipeline, how it goes back to one when a task is lost, and evaluations, which find that too.
#include "train/evaluation.h"
#include "train/pipeline_impl.h"
#include "train/tasks.h"

namespace troupe::nn {

Result<Snapshot> Pipeline::Impl::snapshot() {
  TROUPE_RETURN_IF_ERROR(engine_.may_wait("Pipeline::snapshot"));
  std::unique_lock lock(mutex_);
  for (bool again = false;;) {
    // A batch that waits for earlier snapshots goes first.
    changed_.wait(lock, [&] { return !may_begin_ && !others_catch_up(); });
    // What the variables are until it has gone back is of no step.
    if (going_back_) return kept_->snapshot ? Result<Snapshot>(*kept_->snapshot) : Result<Snapshot>(*error_);
    ++snapshots_;  // no further batch begins
    hold_.reset();
    changed_.wait(lock, [&] { return in_flight_ == 0; });
    lock.unlock();
    auto taken = engine_.snapshot(options_.container).get();
    look_after_tasks();  // what a task had that has started again meanwhile is not in it
    lock.lock();
    if (!error_ && !taken.ok() && watch_ && taken.error().code == Code::kUnavailable) error_ = taken.error();
    // Between two runs no other call makes the lost updates again.
    const bool misses = may_be_lost() && !trains() && kept_->step < first_step_ + updates();
    if ((gave_up_ || may_be_lost()) && kept_->snapshot) taken = *kept_->snapshot;
    else if (error_) taken = *error_;
    else if (taken.ok() && watch_ && kept_) kept_ = Kept{*taken, first_step_ + updates(), position()};
    --snapshots_;
    changed_.notify_all();
    if (!misses) return taken;
    wait_for_others(lock);
    if (trains() || !may_be_lost()) continue;
    if (!std::exchange(again, true)) begin_wait();
    RunSummary made;
    if (const Status status = catch_up(lock, false, made); !status.ok() && !gave_up_) return status.error();
  }
}

void Pipeline::Impl::watch_tasks() {
  if (cluster_status(engine_).empty() || options_.recovery.wait.count() <= 0) return;
  const Tasks tasks(engine_);
  std::map<std::string, std::string> found;  // by device
  TaskWatch::Names names;
  for (int id = 0; id < graph_.size(); ++id) {
    const auto [at, fresh] = found.try_emplace(graph_.node(id).device());
    if (fresh) names.insert(at->second = tasks.task_of(at->first));
  }
  auto watch = std::make_unique<TaskWatch>(engine_, std::move(names), [this] {
    look_after_tasks();
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  });
  const std::lock_guard lock(mutex_);
  watch_ = std::move(watch);
}

void Pipeline::Impl::look_after_tasks() {
  CancelToken steps;
  {
    const std::lock_guard lock(mutex_);
    if (!watch_ || !kept_ || going_back_ || error_) return;
    const auto why = watch_->lost(watch_->all());
    if (!why) return;
    error_ = *why;
    steps = all_steps_;
  }
  steps.cancel();
  interrupt();
}

void Pipeline::Impl::keep_snapshot(const std::function<void(const StepReport&)>& on_step) {
  next_kept_ = Clock::time_point::max();
  if (!watch_ || !kept_) return;
  keeps_next_ = false;
  const auto begin = Clock::now();
  drain(on_step);
  auto taken = engine_.snapshot(options_.container).get();
  look_after_tasks();  // what a task had that has started again meanwhile is not in it
  const std::lock_guard lock(mutex_);
  next_kept_ = later(Clock::now(), snapshot_interval(options_.recovery, Clock::now() - begin));
  if (error_) return;
  if (!taken.ok() && taken.error().code == Code::kUnavailable) error_ = taken.error();
  if (!taken.ok()) return;
  kept_ = Kept{std::move(*taken), first_step_ + updates(), position()};
}

bool Pipeline::Impl::go_back(RunSummary& summary) {
  std::unique_lock lock(mutex_);
  summary.end_of_data = false;
  going_back_ = true;
  const Error why = *error_;
  const int64_t lost_at = first_step_ + updates();
  if (record_.fail(lost_at, watch_->lost(watch_->all()).has_value(), Clock::now())) ++summary.losses;
  const auto since = record_.since();
  const auto deadline = later(since, options_.recovery.wait);
  TaskReport told{.reason = why.message, .step = lost_at};
  lock.unlock();
  tell(told);
  lock.lock();
  for (bool again = false; !ends(); again = true) {
    const auto waited = watch_->wait(lock, changed_, deadline, again, [&] { return ends(); });
    if (waited == TaskWatch::Waited::kEnded) break;
    if (waited == TaskWatch::Waited::kTooLong) {
      gave_up_ = true;
      going_back_ = false;
      return true;
    }
    if (watch_->lost(watch_->all())) record_.explain();
    watch_->accept(watch_->all());
    changed_.wait(lock, [&] { return snapshots_ == 0; });
    const Kept kept = *kept_;
    const int64_t read = position();
    lock.unlock();
    const Status back = assign(kept);
    lock.lock();
    if (watch_->lost(watch_->all())) continue;
    if (!back.ok() && back.error().code == Code::kUnavailable) continue;
    going_back_ = false;
    if (!back.ok()) {
      error_ = back.error();
      gave_up_ = true;
      return true;
    }
    const std::chrono::duration<double> seconds = Clock::now() - since;
    told.back = true;
    told.updates = told.step - kept.step;
    told.step = kept.step;
    told.batches = batches_->repeatable() ? 0 : read - kept.batches;
    summary.batches_lost += told.batches;
    told.seconds = seconds.count();
    error_.reset();
    all_steps_ = CancelToken();
    keeps_next_ = true;
    first_step_ = kept.step;
    batches_before_ = kept.batches;
    batches_started_ = batches_done_ = micro_batches_done_ = 0;
    lock.unlock();
    tell(told);
    return true;
  }
  going_back_ = false;
  return false;
}

Status Pipeline::Impl::catch_up(std::unique_lock<std::mutex>& lock, bool heed_stop, RunSummary& summary) {
  catching_up_ = std::this_thread::get_id();
  heeds_stop_ = heed_stop;
  faults_ = {};
  const bool stopped = stop_;
  lock.unlock();
  const Status status = train({}, summary);
  lock.lock();
  between_.losses += summary.losses;
  between_.batches_lost += summary.batches_lost;
  if (!faults_.ok()) stop_ = stopped;  // on_task's
  heeds_stop_ = true;
  catching_up_ = {};
  changed_.notify_all();
  return status;
}

Status Pipeline::Impl::assign(const Kept& kept) {
  reset_steps();
  if (batches_->repeatable()) {
    TROUPE_ASSIGN(std::shared_ptr<BatchSource> source, BatchSource::make(batches_->skip(kept.batches)));
    const std::lock_guard lock(mutex_);
    source_.swap(source);
  }
  TROUPE_RETURN_IF_ERROR(assign_initial());
  return kept.snapshot ? engine_.restore(*kept.snapshot, options_.container) : Status();
}

Result<Metrics> Pipeline::Impl::evaluate(const Dataset& batches) {
  TROUPE_RETURN_IF_ERROR(engine_.may_wait("Pipeline::evaluate"));
  const auto give_up = later(Clock::now(), options_.recovery.wait);
  {
    const std::lock_guard lock(mutex_);
    begin_wait();
  }
  for (;;) {
    TROUPE_ASSIGN(const std::shared_ptr<BatchSource> source, BatchSource::make(batches));
    look_after_tasks();
    std::unique_lock lock(mutex_);
    wait_for_others(lock);
    // In on_task, of going back, it is not.
    const auto in_on_task = [&] { return going_back_ || (trains() && !running_); };
    if (may_be_lost() && !in_on_task()) {
      // What a lost task had is made again first; in a run that goes on from what is kept.
      bool stopped = false;
      if (running_) {
        changed_.wait(lock, [&] { return in_flight_ == 0; });
        lock.unlock();
        stopped = !go_back(*summary_);
        lock.lock();
        if (gave_up_) return *error_;
      } else {
        RunSummary again;
        TROUPE_RETURN_IF_ERROR(catch_up(lock, true, again));
        stopped = again.stopped;
      }
      if (stopped) {
        if (!running_) stop_ = false;  // else the run ends by it too
        return make_error(Code::kCancelled, "the evaluation was stopped while a task was lost");
      }
    }
    tests_ = source;
    lock.unlock();
    auto metrics = evaluate_batches(*session_, *source, {&test_, 1}, 2 * options_.devices.size() + 1, [&] {
      const std::lock_guard stopping(mutex_);
      return stop_;
    });
    lock.lock();
    tests_.reset();
    if (metrics.ok()) return metrics;
    const bool stopped = running_ ? stop_ : std::exchange(stop_, false);  // in on_step the run ends by it too
    if (stopped || in_on_task() || !may_be_lost(metrics.error()) || Clock::now() >= give_up) return metrics;
    // A run goes on where nothing but the test has failed.
    if (!error_ && (!running_ || watch_->lost(watch_->all()))) error_ = metrics.error();
    if (!error_) changed_.wait_for(lock, kPause, [&] { return stop_; });
    if (!error_) continue;
    CancelToken steps = all_steps_;
    lock.unlock();
    steps.cancel();
  }
}

}  // namespace troupe::nn
