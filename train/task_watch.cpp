// SPDX-License-Identifier: Apache-2.0
#include "train/task_watch.h"

#include <algorithm>

namespace troupe::nn {

TaskWatch::TaskWatch(Engine& engine, Names tasks, std::function<void()> changed)
    : engine_(engine), tasks_(std::move(tasks)) {
  accept(tasks_);
  watching_ = watch_cluster(engine_, std::move(changed));
}

std::optional<Error> TaskWatch::lost(const Names& tasks) const {
  for (const TaskStatus& now : cluster_status(engine_)) {
    if (!tasks.contains(now.task)) continue;
    if (!now.up) {  // most reasons name it
      const bool named = now.reason.starts_with("/job:");
      return make_error(Code::kUnavailable, "{}{}", named ? "" : now.task + ": ", now.reason);
    }
    if (now.lives != lives_.at(now.task)) return make_error(Code::kUnavailable, "{}: it has started again", now.task);
  }
  return {};
}

bool TaskWatch::up(const Names& tasks) const {
  return std::ranges::all_of(cluster_status(engine_),
                             [&](const TaskStatus& now) { return now.up ? now.ready : !tasks.contains(now.task); });
}

void TaskWatch::accept(const Names& tasks) {
  for (const TaskStatus& now : cluster_status(engine_))
    if (tasks.contains(now.task)) lives_[now.task] = now.lives;
}

Status TaskWatch::begin(std::mutex& mutex, std::condition_variable& changed, std::chrono::nanoseconds wait,
                        const std::function<Status()>& assign) {
  std::unique_lock lock(mutex);
  const auto give_up = later(Clock::now(), wait);
  while (true) {
    accept(tasks_);
    lock.unlock();
    const Status status = assign();
    lock.lock();
    if (Clock::now() >= give_up) return status;
    if (status.ok() ? !lost(tasks_) : !explains(status.error(), tasks_)) return status;
    changed.wait_for(lock, kPause, [] { return false; });
    changed.wait_until(lock, give_up, [this] { return up(tasks_); });
  }
}

TaskWatch::Waited TaskWatch::wait(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                                  Clock::time_point until, bool again, const std::function<bool()>& ends) const {
  if (again || !lost(tasks_)) changed.wait_for(lock, kPause, ends);
  const auto woken = [&] { return ends() || up(tasks_); };
  if (until == Clock::time_point::max()) changed.wait(lock, woken);
  else changed.wait_until(lock, until, woken);
  if (ends()) return Waited::kEnded;
  return Clock::now() >= until ? Waited::kTooLong : Waited::kThere;
}

}  // namespace troupe::nn
