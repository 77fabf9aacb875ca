// SPDX-License-Identifier: Apache-2.0
// The loops of a Trainer: which step may begin, and what its end does.
#include <cmath>

#include "train/trainer_impl.h"

namespace troupe::nn {

int64_t Trainer::Impl::slowest() const {
  int64_t out = INT64_MAX;
  for (const Replica& r : replicas_)
    if (r.phase != Phase::kAside) out = std::min(out, r.updates);
  return out;
}

bool Trainer::Impl::may_compute(const Replica& r) const {
  if (r.phase != Phase::kReady || halted() || ended_ || withdrawing_ || held()) return false;
  if (r.reports >= kMostReports && !(local() && is_awaited())) return false;
  switch (options_.mode) {
    // The first step after the update at work is not begun while a snapshot is to be taken in between.
    case ReplicaMode::kHybrid: return done_ < target_ && ((wanted_.empty() && !keeps_next_) || r.local_step <= step());
    case ReplicaMode::kLocal: return !averaging_ && !r.ended && r.updates < round_end();
    case ReplicaMode::kAsync:
      if (keeps_next_ && computing_ > 0) return false;
      if (options_.max_staleness >= 0 && r.updates - slowest() > options_.max_staleness) return false;
      [[fallthrough]];
    case ReplicaMode::kSync: return started_ < target_ && !is_to_stop();
  }
  return false;
}

bool Trainer::Impl::has_input(const Replica& r) const {
  if (input_closed_) return true;  // it takes what is left, or learns that nothing is
  const auto queues = std::ssize(enqueue_);
  if (queues == 1) return !counting_ && (taken_ < filled_ || seen_);
  if (options_.mode == ReplicaMode::kSync) return filled_ >= (taken_ + 1) * queues;
  return r.taken < (filled_ + queues - 1 - (&r - replicas_.data())) / queues;
}

void Trainer::Impl::take_input(Replica& r) {
  ++r.taken;
  ++taken_;
  seen_ = counted_ = false;
  if (r.starved_since == Clock::time_point()) return;
  r.input_wait_ns += std::chrono::nanoseconds(Clock::now() - std::exchange(r.starved_since, {})).count();
}

bool Trainer::Impl::between_updates() const {
  switch (options_.mode) {
    case ReplicaMode::kAsync: return true;
    // A replica whose gradients are taken may still move its averages; those that come too late are not waited for.
    case ReplicaMode::kHybrid: return !updating_ && (options_.backups > 0 || computing_ == 0);
    case ReplicaMode::kSync: return computing_ == 0;
    case ReplicaMode::kLocal:
      return computing_ == 0 && !averaging_ &&
             (error_ || std::ranges::all_of(replicas_, [&](const Replica& r) { return r.updates == done_; }));
  }
  return true;
}

bool Trainer::Impl::held() const {
  if (options_.mode == ReplicaMode::kAsync) return is_to_keep();
  if (taking_) return true;
  return !wanted_.empty() && (hybrid() ? !updating_ : between_updates());
}

void Trainer::Impl::schedule(Launches& launches) {
  // A run that is to end does not wait for gradients that do not come, and the update cannot be taken back.
  const auto stuck = [&](const Replica& r) {
    if (r.phase == Phase::kAside) return watch_->lost({r.task}).has_value();
    return r.phase == Phase::kReady && !has_input(r) && !counting_ && !in_doubt_of_input();
  };
  if (in_doubt() && update_waits() && (ended_ || (stopping_ && std::ranges::any_of(replicas_, stuck))))
    lose(why_in_doubt_);
  if ((error_ || broken_) && !std::exchange(cancelled_, true)) {
    launches.push_back([token = all_steps_]() mutable { token.cancel(); });
    launches.push_back([token = update_step_]() mutable { token.cancel(); });
  }
  if ((broken_ || gave_up_) && !wanted_.empty())
    launches.push_back([wanted = std::exchange(wanted_, {}),
                        out = goes_on_from_kept() ? std::optional<Result<Snapshot>>(*kept_->snapshot) : std::nullopt] {
      tell(wanted, out);
    });
  if (is_to_keep() && !broken_ && !taking_ && wanted_.empty()) keep_snapshot();
  if (!wanted_.empty() && !taking_ && !closing_ && between_updates()) take_snapshots(launches);
  if (hybrid() && !updating_ && may_update() && !held()) {
    ++started_;
    updating_ = true;
    RunOptions options = run_options_;
    options.cancel = update_step_;
    launch(launches, update_, {}, options, [this](RunResult r, Launches& more) { update_done(r, more); });
  }
  // The queue is closed and empty: what was put into it was taken.
  if (ended_ && computing_ == 0 && !halted() && apart()) not_taken(taken_ - filled_);
  bool starved = false;
  for (size_t i = 0; i < replicas_.size(); ++i) {
    Replica& r = replicas_[i];
    if (!may_compute(r)) continue;
    if (!has_input(r)) {
      starved = true;
      if (r.starved_since == Clock::time_point()) r.starved_since = Clock::now();
      continue;
    }
    take_input(r);
    r.phase = Phase::kComputing;
    ++computing_;
    std::vector<Tensor> feeds;
    // Dropout follows from the step alone, so that a run which was resumed repeats one which was not.
    RunOptions options = run_options_;
    if (hybrid()) {
      if (r.local_step < 0) r.local_step = step();
      feeds.push_back(Tensor::scalar<int64_t>(r.local_step));
      options.random_step = r.local_step;
    } else if (local()) {
      options.random_step = first_step_ + r.updates;
      started_ = std::max(started_, r.updates + 1);
    } else {
      options.random_step = first_step_ + started_++;
    }
    launch(launches, r.step, std::move(feeds), options,
           [this, i](RunResult result, Launches& more) { replica_done(static_cast<int>(i), result, more); });
  }
  if (starved && in_doubt_of_input() && !counting_ && computing_ == 0) count_input(launches);
  // Without input the update at work has not begun to change anything, and does not while replicas are held. One that
  // is in doubt is waited for.
  const bool withdraws = update_waits() && !in_doubt();
  if (!wanted_.empty() && !taking_ && withdraws) {
    // A snapshot over tasks waits for what is under way: the update is made again after it.
    if (tasks_.own().empty()) take_snapshots(launches);
    else withdraw_update(launches);
  }
  if (local() && !averaging_ && computing_ == 0 && !halted()) end_round(launches);
  // The data ended, or are not there and a stop is wanted: the update would wait for gradients that do not come.
  if (withdraws && (ended_ || stopping_)) withdraw_update(launches);
}

void Trainer::Impl::withdraw_update(Launches& launches) {
  if (std::exchange(withdrawing_, true)) return;
  launches.push_back([token = update_step_]() mutable { token.cancel(); });
}

void Trainer::Impl::launch(Launches& launches, const Prepared& prepared, std::vector<Tensor> feeds,
                           const RunOptions& options, Done done) {
  ++in_flight_;
  launches.push_back([this, prepared, options, feeds = std::move(feeds), done = std::move(done)]() mutable {
    session_->run_async(
        prepared, std::move(feeds), [this, done = std::move(done)](RunResult r) { finish(done, std::move(r)); },
        options);
  });
}

void Trainer::Impl::finish(const Done& done, RunResult result) {
  Launches launches;
  {
    std::lock_guard lock(mutex_);
    // A queue of a task that has started again is empty: the data have not ended.
    if (!result.ok()) look_after_tasks();
    done(std::move(result), launches);
    schedule(launches);
  }
  for (auto& launch : launches) launch();
  std::lock_guard lock(mutex_);
  --in_flight_;
  if (!reports_.empty() || !news_.empty() || idle() || closing_ || broken_) changed_.notify_all();
}

void Trainer::Impl::fail(const Error& error) {
  if (halted()) return;
  if (may_be_lost(error)) lose(error);
  else error_ = error;
}

void Trainer::Impl::replica_done(int i, RunResult& result, Launches& launches) {
  Replica& r = replicas_[i];
  r.phase = Phase::kReady;
  --computing_;
  if (!result.ok()) {
    if (!hybrid() && !local()) --started_;
    if (result.error().code == Code::kOutOfRange && !broken_) (local() ? r.ended : ended_) = true, --taken_;
    else if (!set_aside(i, result.error())) fail(result.error());
    return;
  }
  StepReport report{0, i, (*result)[0].data<float>()[0], (*result)[1].data<float>()[0],
                    (*result)[2].data<int32_t>()[0]};
  if (hybrid()) {
    ++pushes_[r.local_step];
    r.phase = Phase::kAwaitingToken;
    ask_token(i, launches);
  } else if (!local()) {
    ++done_;
  }
  ++r.updates;
  record_.update(Clock::now());
  report.step = local() ? first_step_ + r.updates : step();
  if (reporting_) {
    ++r.reports;
    reports_.push_back(report);
  }
  if (!std::isfinite(report.loss)) {
    const bool of_all = options_.mode == ReplicaMode::kSync && options_.devices.size() > 1;
    Error error = invalid_argument("the loss{} is {} at step {}",
                                   of_all ? ", a mean of all replicas'," : fmt::format(" of replica {}", i),
                                   report.loss, report.step);
    error.step = report.step;
    fail(error);
  }
}

void Trainer::Impl::ask_token(int i, Launches& launches) {
  replicas_[static_cast<size_t>(i)].token_asked = true;
  launch(launches, token_, {}, run_options_, [this, i](RunResult token, Launches&) { token_done(i, token); });
}

void Trainer::Impl::token_done(int i, RunResult& token) {
  Replica& r = replicas_[static_cast<size_t>(i)];
  r.token_asked = false;
  if (!token.ok()) return fail(token.error());
  r.local_step = (*token)[0].data<int64_t>()[0];
  if (r.phase == Phase::kAwaitingToken) r.phase = Phase::kReady;
}

void Trainer::Impl::update_done(RunResult& result, Launches& launches) {
  updating_ = false;
  const bool withdrawn = std::exchange(withdrawing_, false);
  if (result.ok()) {
    ++done_;
    pushes_.erase(pushes_.begin(), pushes_.lower_bound(step()));
    // Else the others would take the tokens that one who is aside does not, and those are of steps that are over.
    for (size_t i = 0; i < replicas_.size(); ++i)
      if (replicas_[i].phase == Phase::kAside && !replicas_[i].token_asked) ask_token(static_cast<int>(i), launches);
    return;
  }
  --started_;
  if (ended_ && !broken_) return;
  if (!withdrawn || error_ || result.error().code != Code::kCancelled) return fail(result.error());
  update_step_ = CancelToken();  // what comes next goes on with the gradients that there are
  if (stopping_) target_ = std::min(target_, started_);
}

void Trainer::Impl::count_input(Launches& launches) {
  counting_ = counted_ = true;
  launch(launches, count_, {}, run_options_,
         [this, alone = !filling_](RunResult r, Launches& more) { input_counted(r, alone, more); });
}

void Trainer::Impl::input_counted(RunResult& result, bool alone, Launches& launches) {
  counting_ = false;
  if (!result.ok()) return fail(result.error());
  if (halted()) return;
  const int64_t there = (*result)[0].data<int32_t>()[0];
  // Where the input goes on, one of these is perhaps of a step whose end is not known yet.
  const int64_t most_taken = filled_ - there + (alone ? 0 : 1);
  if (!input_closed_) not_taken(taken_ - most_taken);
  seen_ = there > 0;
  miscounted_ = !alone;
  if (alone) enqueue_next(0, launches);
}

void Trainer::Impl::not_taken(int64_t batches) {
  if (batches <= 0) return;
  taken_ -= batches;
  lost_ -= batches;
  for (Replica& r : replicas_) {  // of those that are not back nobody has been told
    const int64_t its = std::min(batches, r.batches_lost);
    r.batches_lost -= its;
    batches -= its;
  }
}

void Trainer::Impl::end_round(Launches& launches) {
  const auto there = [&](const Replica& r) {
    return r.ended || r.updates >= round_end() || (stopping_ && !has_input(r));
  };
  if (!std::ranges::all_of(replicas_, there)) return;
  if (std::ranges::any_of(replicas_, [&](const Replica& r) { return r.updates > done_; })) {
    averaging_ = true;
    launch(launches, average_, {}, run_options_, [this](RunResult r, Launches&) { average_done(r); });
  } else {
    ended_ |= any_ended();
  }
}

void Trainer::Impl::average_done(RunResult& result) {
  averaging_ = false;
  if (!result.ok()) return fail(result.error());
  // Where the data ended, or a stop came before them, the first replica, which is served first, has made as many
  // updates as any.
  done_ = replicas_[0].updates;
  if (stopping_) target_ = std::min(target_, done_);
  for (Replica& r : replicas_) r.updates = done_;
  ended_ |= any_ended();
}

void Trainer::Impl::enqueue_next(size_t queue, Launches& launches) {
  filling_ = true;
  launch(launches, enqueue_[queue], {}, run_options_, [this, queue](RunResult r, Launches& more) {
    if (r.ok()) {
      filling_ = false;
      ++filled_;
      counted_ = false;
      if (halted()) return;
      // Now the queue can tell for certain.
      if (miscounted_ && !counting_ && !seen_ && computing_ == 0 && taken_ >= filled_) count_input(more);
      else enqueue_next((queue + 1) % enqueue_.size(), more);
    } else if (r.error().code == Code::kOutOfRange && !broken_) {
      launch(more, close_, {}, run_options_, [this](RunResult closed, Launches&) {
        input_closed_ = true;
        if (!closed.ok()) fail(closed.error());
      });
    } else {
      fail(r.error());
    }
  });
}

}  // namespace troupe::nn
