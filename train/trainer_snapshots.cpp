// SPDX-License-Identifier: Apache-2.0
// What a Trainer's variables are given, and snapshots between two updates.
#include <future>

#include "train/gpus.h"
#include "train/shards.h"
#include "train/trainer_impl.h"

namespace troupe::nn {

Status Trainer::Impl::initialise() {
  TROUPE_RETURN_IF_ERROR(engine_.may_wait("Trainer::initialise"));
  {
    const std::lock_guard lock(mutex_);
    TROUPE_RETURN_IF_ERROR(between_runs("initialise"));
  }
  TROUPE_RETURN_IF_ERROR(begin([&] { return assign_initial(); }));
  std::lock_guard lock(mutex_);
  if (input_started_) return {};
  first_step_ = 0;  // of an earlier restore()
  kept_ = Kept{.lost = lost_};
  return {};
}

Status Trainer::Impl::assign_initial() {
  // In a session of its own, so that each call draws the same random values.
  Session session(engine_, graph_, {.soft_placement = any_gpu(options_.devices)});
  TROUPE_RETURN_IF_ERROR(session.run({}, std::vector<Output>{}, towers_.initialise));
  return publish();
}

Status Trainer::Impl::publish() {
  if (towers_.publish.targets.empty()) return {};
  return session_->run({}, std::vector<Output>{}, towers_.publish.targets).status();
}

Status Trainer::Impl::restore(const Snapshot& snapshot) {
  if (input_started_) return make_error(Code::kFailedPrecondition, "restore: the trainer has run already");
  TROUPE_RETURN_IF_ERROR(check_of_model(snapshot, variables_.trainable()));
  std::vector<Tensor> found;
  const Status restored = begin([&]() -> Status {
    TROUPE_RETURN_IF_ERROR(assign_initial());
    TROUPE_RETURN_IF_ERROR(assign(snapshot));
    TROUPE_ASSIGN(found, session_->run({}, {towers_.global_step}));
    return {};
  });
  std::lock_guard lock(mutex_);
  first_step_ = restored.ok() ? found[0].data<int64_t>()[0] : 0;
  kept_ = restored.ok() ? Kept{snapshot, first_step_, 0, lost_} : Kept{.lost = lost_};
  return restored;
}

Status Trainer::Impl::assign(const Snapshot& snapshot) {
  TROUPE_ASSIGN(auto parts, part_slots(towers_.shards, containers(), snapshot));
  TROUPE_RETURN_IF_ERROR(engine_.restore(parts[0], options_.container));
  TROUPE_RETURN_IF_ERROR(publish());
  for (size_t i = 1; i < parts.size(); ++i)
    TROUPE_RETURN_IF_ERROR(engine_.restore(parts[i], containers()[i]->container()));
  return {};
}

Result<Snapshot> Trainer::Impl::snapshot(const std::stop_token& hurry) {
  TROUPE_RETURN_IF_ERROR(engine_.may_wait("Trainer::snapshot"));
  const std::stop_callback wake(hurry, [this] {
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  });
  const auto ends = [&] { return hurry.stop_requested() && !running_ && kept_ && kept_->snapshot; };
  for (bool again = false; true; again = true) {
    auto promise = std::make_shared<std::promise<std::optional<Result<Snapshot>>>>();
    auto future = promise->get_future();
    Launches launches;
    {
      std::unique_lock lock(mutex_);
      if (!again) begin_wait();
      look_after_tasks();
      while (broken_ && !goes_on_from_kept() && !ends()) recover(lock, ends);
      if ((broken_ || gave_up_) && kept_->snapshot) return *kept_->snapshot;
      if (gave_up_) return *error_;
      catch_up(lock, ends);
      if (ends() && !idle()) return *kept_->snapshot;
      wanted_.push_back([promise](std::optional<Result<Snapshot>> s) { promise->set_value(std::move(s)); });
      schedule(launches);
    }
    for (auto& launch : launches) launch();
    if (auto taken = future.get()) return std::move(*taken);
  }
}

std::vector<const Variables*> Trainer::Impl::containers() const {
  std::vector<const Variables*> out = {&variables_};
  for (const auto& copy : towers_.copies) out.push_back(copy.get());
  return out;
}

void Trainer::Impl::take_snapshots(Launches& launches) {
  taking_ = true;
  taking_since_ = Clock::now();
  ++in_flight_;
  // Those that a step has taken which is under way may be used or not.
  const int64_t batches = position_ + taken_ * (options_.mode == ReplicaMode::kSync ? std::ssize(enqueue_) : 1) -
                          (options_.mode == ReplicaMode::kSync ? 0 : computing_) - waiting_pushes();
  launches.push_back([this, batches, lost = lost_, keeps = is_to_keep(), wanted = std::exchange(wanted_, {})] {
    struct Parts {
      std::mutex mutex;
      std::vector<Snapshot> snapshots;
      size_t left;
      Status status;
    };
    const auto from = containers();
    const size_t count = towers_.shards.empty() ? 1 : from.size();
    auto parts = std::make_shared<Parts>();
    parts->snapshots.resize(count);
    parts->left = count;
    for (size_t i = 0; i < count; ++i)
      engine_.snapshot(
          [this, i, batches, lost, keeps, parts, wanted](Result<Snapshot> part) {
            {
              std::lock_guard lock(parts->mutex);
              if (part.ok()) parts->snapshots[i] = std::move(*part);
              else if (parts->status.ok()) parts->status = part.status();
              if (--parts->left > 0) return;
            }
            auto whole = parts->status.ok() ? join_slots(towers_.shards, std::move(parts->snapshots))
                                            : Result<Snapshot>(parts->status);
            finish(
                [&](RunResult, Launches& launches) {
                  taking_ = false;
                  snapshot_taken(std::move(whole), {.batches = batches, .lost = lost}, keeps, wanted, launches);
                },
                std::vector<Tensor>());
          },
          from[i]->container());
  });
}

void Trainer::Impl::snapshot_taken(Result<Snapshot> whole, Kept kept, bool keeps, const std::vector<Taken>& wanted,
                                   Launches& launches) {
  if (recovers() && !broken_) {
    // What a task had that has started again meanwhile is not in it.
    if (const auto why = watch_->lost(vital_)) lose(*why);
    else if (!whole.ok() && whole.error().code == Code::kUnavailable) lose(whole.error());
    const auto at = whole.ok() && !broken_ ? step_of(*whole) : Error();
    keeps_next_ = keeps_next_ && !keeps;
    took_ = Clock::now() - taking_since_;
    if (at.ok()) {
      kept.snapshot = *whole;
      kept.step = *at;
      kept_ = std::move(kept);
    }
    next_kept_ = later(Clock::now(), snapshot_interval(options_.recovery, took_));
    changed_.notify_all();  // run() waits for that
  }
  if (broken_) wanted_.insert(wanted_.end(), wanted.begin(), wanted.end());
  else launches.push_back([wanted, whole = std::move(whole)] { tell(wanted, whole); });
}

}  // namespace troupe::nn
