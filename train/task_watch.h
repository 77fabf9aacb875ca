// SPDX-License-Identifier: Apache-2.0
// TaskWatch: whether the tasks of a cluster that a trainer needs are the processes that they were, since what a process
// had is gone when another one takes its place.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "troupe/cluster.h"

namespace troupe::nn {

using Clock = std::chrono::steady_clock;
/// `wait` after `then`, or the end of time.
inline Clock::time_point later(Clock::time_point then, std::chrono::nanoseconds wait) {
  return wait > Clock::time_point::max() - then ? Clock::time_point::max() : then + wait;
}

/// Before what failed though no task is known to be lost is tried again.
constexpr auto kPause = std::chrono::milliseconds(200);

/// Thread-safe but for accept(), which its owner guards.
class TaskWatch {
 public:
  using Names = std::set<std::string>;  // "/job:worker/task:1"

  /// `changed` is called as watch_cluster() says. What the tasks are now is what they were.
  TaskWatch(Engine& engine, Names tasks, std::function<void()> changed);

  const Names& all() const { return tasks_; }
  /// What has happened to one of `tasks`: it is not there, or is another process now.
  std::optional<Error> lost(const Names& tasks) const;
  /// Whether those are there, and all that are there connected.
  bool up(const Names& tasks) const;
  /// What they are now is what they were.
  void accept(const Names& tasks);
  /// Carries out what gives variables their first values, again where a task is lost meanwhile: until then none had
  /// anything to lose. `changed` is told, as the watch is, and `mutex`, which guards this, is not held meanwhile.
  Status begin(std::mutex& mutex, std::condition_variable& changed, std::chrono::nanoseconds wait,
               const std::function<Status()>& assign);
  /// How a wait for all tasks ends: they are there, `until` has passed, or `ends` has come true.
  enum class Waited { kThere, kTooLong, kEnded };
  /// Waits for that, with `lock` on the mutex that guards this. Not at once where it is tried `again`, or where no task
  /// is lost, which may be told yet.
  Waited wait(std::unique_lock<std::mutex>& lock, std::condition_variable& changed, Clock::time_point until, bool again,
              const std::function<bool()>& ends) const;
  /// Whether an error comes of a task that is lost.
  bool explains(const Error& error, const Names& tasks) const {
    return error.code == Code::kUnavailable || lost(tasks);
  }

 private:
  Engine& engine_;
  const Names tasks_;
  std::map<std::string, int64_t> lives_;
  std::shared_ptr<void> watching_;  // last, so that it goes first
};

}  // namespace troupe::nn
