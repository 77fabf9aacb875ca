// SPDX-License-Identifier: Apache-2.0
// A Trainer's tasks that are lost and come back.
#include "train/gpus.h"
#include "train/trainer_impl.h"

namespace troupe::nn {

void Trainer::Impl::watch_tasks() {
  if (cluster_status(engine_).empty() || options_.recovery.wait.count() <= 0) return;
  TaskWatch::Names names;
  std::map<std::string, std::string> tasks;  // by device
  for (int id = 0; id < graph_.size(); ++id) {
    const Node& node = graph_.node(id);
    const auto [at, fresh] = tasks.try_emplace(node.device());
    if (fresh) at->second = tasks_.task_of(node.device());
    names.insert(at->second);
    const bool resource = node.num_outputs() > 0 && node.dtype(0) == DType::kResource;
    if (!apart() || resource) vital_.insert(at->second);
  }
  for (size_t i = 0; i < replicas_.size(); ++i)
    replicas_[i].task = options_.devices.empty() ? std::string() : tasks_.task_of(options_.devices[i]);
  auto watch = std::make_unique<TaskWatch>(engine_, std::move(names), [this] {
    Launches launches;
    {
      std::lock_guard lock(mutex_);
      look_after_tasks();
      schedule(launches);
      changed_.notify_all();
    }
    for (auto& launch : launches) launch();
  });
  std::lock_guard lock(mutex_);
  watch_ = std::move(watch);
}

void Trainer::Impl::lose(const Error& error) {
  const auto why = watch_->lost(vital_);
  broken_ = why.value_or(error);
  if (record_.fail(step(), why.has_value(), Clock::now())) ++losses_;
  news_.push_back({.reason = broken_->message, .step = step()});
}

void Trainer::Impl::catch_up(std::unique_lock<std::mutex>& lock, const Ends& ends) {
  if (!watch_ || running_) return;
  while (!error_ && !ends() && !(idle() && !broken_)) {
    if (broken_) recover(lock, ends);
    else changed_.wait(lock, [&] { return idle() || may_recover() || ends(); });
  }
}

void Trainer::Impl::look_after_tasks() {
  if (!recovers() || closing_) return;
  if (!broken_)
    if (const auto why = watch_->lost(vital_)) lose(*why);
  if (broken_) return;
  for (Replica& r : replicas_) {
    if (r.phase != Phase::kAside) continue;
    if (const auto why = r.told_aside ? std::nullopt : watch_->lost({r.task})) {
      r.told_aside = true;
      r.why_aside = why->message;
      r.retry_at = {};
      ++losses_;
      news_.push_back({.reason = why->message, .replica = static_cast<int>(&r - replicas_.data()), .step = step()});
    }
    if (r.retry_at <= Clock::now() && watch_->up({r.task})) take_back(r);
  }
}

bool Trainer::Impl::set_aside(int i, const Error& error) {
  Replica& r = replicas_[static_cast<size_t>(i)];
  if (!recovers() || halted() || vital_.contains(r.task) || watch_->lost(vital_)) return false;
  const auto why = watch_->lost({r.task});
  if (!why && error.code != Code::kUnavailable) return false;
  r.phase = Phase::kAside;
  r.why_aside = error.message;
  r.aside_since = Clock::now();
  r.retry_at = r.aside_since + (why ? Clock::duration() : kPause);
  ++r.batches_lost;
  ++lost_;
  miscounted_ = true;
  counted_ = false;
  if (hybrid()) doubtful_ = std::max(doubtful_, r.local_step), why_in_doubt_ = error;
  look_after_tasks();
  changed_.notify_all();  // run() looks after it
  return true;
}

void Trainer::Impl::take_back(Replica& r) {
  watch_->accept({r.task});
  // Behind the slowest it would hold up the others.
  if (const int64_t others = slowest(); others != INT64_MAX) r.updates = std::max(r.updates, others);
  r.phase = r.token_asked ? Phase::kAwaitingToken : Phase::kReady;
  if (!std::exchange(r.told_aside, false)) return;
  const std::chrono::duration<double> seconds = Clock::now() - r.aside_since;
  told_lost_ += r.batches_lost;
  news_.push_back({.reason = r.why_aside,
                   .back = true,
                   .replica = static_cast<int>(&r - replicas_.data()),
                   .step = step(),
                   .batches = std::exchange(r.batches_lost, 0),
                   .seconds = seconds.count()});
}

Clock::time_point Trainer::Impl::next_wake() const {
  if (!recovers() || broken_) return Clock::time_point::max();
  Clock::time_point out = taking_ || !wanted_.empty() ? Clock::time_point::max() : next_kept_;
  for (const Replica& r : replicas_)
    if (r.phase == Phase::kAside)
      out = std::min(out, std::max(r.retry_at, last_look_ + kPause));  // also to see whether any is left
  return out;
}

void Trainer::Impl::take_care(Launches& launches) {
  last_look_ = Clock::now();
  look_after_tasks();
  if (!recovers() || broken_) return schedule(launches);
  const auto now = Clock::now();
  if (now >= next_kept_ && wanted_.empty() && !taking_) {
    keep_snapshot();
    next_kept_ = Clock::time_point::max();  // until that is taken
  }
  // So many are aside, for too long, that no update can be made.
  const auto aside = [](const Replica& r) { return r.phase == Phase::kAside; };
  const auto left = std::ssize(replicas_) - std::ranges::count_if(replicas_, aside);
  if (const int least = hybrid() ? needed() : 1;
      left < least && now >= later(record_.last_update(), options_.recovery.wait)) {
    gave_up_ = gave_up_ || (updating_ && in_doubt());
    error_ =
        make_error(Code::kUnavailable, "{} of {} replicas {} left, and an update needs {}: {}", left, replicas_.size(),
                   left == 1 ? "is" : "are", least, std::ranges::find_if(replicas_, aside)->why_aside);
  }
  schedule(launches);
}

void Trainer::Impl::recover(std::unique_lock<std::mutex>& lock, const Ends& ends) {
  if (recovering_) return changed_.wait(lock, [&] { return !recovering_; });
  recovering_ = true;
  Launches launches, more;
  schedule(launches);
  lock.unlock();
  for (auto& launch : launches) launch();
  lock.lock();
  changed_.wait(lock, [&] { return in_flight_ == 0; });
  const auto deadline = later(std::max(record_.since(), asked_at_), options_.recovery.wait);
  for (bool again = false; broken_ && !error_ && !ends(); again = true) {
    const auto waited = watch_->wait(lock, changed_, deadline, again, ends);
    if (waited == TaskWatch::Waited::kEnded) break;
    if (waited == TaskWatch::Waited::kTooLong) {
      error_ = *broken_;
      break;
    }
    if (watch_->lost(watch_->all())) record_.explain();
    watch_->accept(watch_->all());
    all_steps_ = CancelToken();
    update_step_ = CancelToken();
    run_options_.cancel = all_steps_;
    const Kept kept = *kept_;
    lock.unlock();
    const Status back = go_back(kept);
    lock.lock();
    if (watch_->lost(watch_->all())) continue;
    if (back.ok()) {
      begin_again(kept);
      if (input_started_) enqueue_next(0, more);
    } else if (back.error().code != Code::kUnavailable) error_ = back.error();
  }
  if (error_) {
    gave_up_ = gave_up_ || broken_;
    broken_.reset();
  }
  recovering_ = false;
  changed_.notify_all();
  schedule(more);
  lock.unlock();
  for (auto& launch : more) launch();
  lock.lock();
}

Status Trainer::Impl::go_back(const Kept& kept) {
  engine_.reset_container(trainer_container(options_.name));
  if (batches_->repeatable()) {
    TROUPE_RETURN_IF_ERROR(engine_.remove_dataset(options_.name));
    TROUPE_RETURN_IF_ERROR(engine_.add_dataset(options_.name, batches_->skip(kept.batches)));
  }
  TROUPE_RETURN_IF_ERROR(assign_initial());
  if (kept.snapshot) TROUPE_RETURN_IF_ERROR(assign(*kept.snapshot));
  return hybrid() ? tell_step(kept.step) : Status();
}

void Trainer::Impl::begin_again(const Kept& kept) {
  const std::chrono::duration<double> seconds = Clock::now() - record_.since();
  // kAsync: what is kept may have updates of steps that failed with their tasks, which were not counted.
  const int64_t lost = std::max<int64_t>(step() - kept.step, 0);
  // What was read since then is read again, or, where it cannot be, all lost.
  lost_ = kept.lost + (batches_->repeatable() ? 0 : position_ + filled_ - kept.batches);
  news_.push_back({.reason = broken_->message,
                   .back = true,
                   .step = kept.step,
                   .updates = lost,
                   .batches = std::max<int64_t>(lost_ - told_lost_, 0),
                   .seconds = seconds.count()});
  told_lost_ = lost_;
  broken_.reset();
  next_kept_ = later(Clock::now(), snapshot_interval(options_.recovery, took_));  // what was wanted was not taken
  keeps_next_ = true;
  done_ = started_ = kept.step - first_step_;
  if (!running_) target_ = std::max(target_, done_);
  if (done_ >= target_) record_.update(Clock::now());  // none is to be made again: the next loss is another one
  position_ = kept.batches;
  filled_ = taken_ = 0;
  miscounted_ = counting_ = seen_ = false;
  pushes_.clear();
  doubtful_ = -1;
  computing_ = 0;
  ended_ = input_closed_ = cancelled_ = updating_ = averaging_ = withdrawing_ = taking_ = false;
  for (Replica& r : replicas_) {
    r.phase = Phase::kReady;
    r.local_step = -1;
    r.updates = local() ? done_ : 0;
    r.taken = 0;
    r.ended = r.token_asked = r.told_aside = false;
    r.batches_lost = 0;
    r.starved_since = {};
  }
}

}  // namespace troupe::nn
