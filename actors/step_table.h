// SPDX-License-Identifier: Apache-2.0
// StepTable: the steps of an engine that have begun and whose callers have not been answered. Thread-safe.
#pragma once
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "devices/step_call.h"

namespace troupe {

class StepTable {
 public:
  /// Before the step is sent anywhere. `owner`: its session.
  void add(const StepRef& step, const void* owner);
  /// Of a step that will begin later under that number: it counts as running from now on. Then set().
  void reserve(int64_t id, const void* owner);
  void set(const StepRef& step);
  /// The step has ended and its caller is about to be told: calls what watch() left.
  void ended(int64_t id);
  /// A caller will be told of a step that did not begin.
  void will_answer();
  /// A caller has been told.
  void answered();
  bool is_running(int64_t id) const;
  /// Whether the step is running; then `then` is called, on some thread, when it has ended.
  bool watch(int64_t id, std::function<void()> then);
  /// The step of that number, if it is running and has been set.
  StepRef find(int64_t id) const;
  /// Those of a session; of nullptr all.
  std::vector<StepRef> running(const void* owner = nullptr) const;
  /// Returns when every caller has been answered.
  void wait_until_answered();

 private:
  struct Entry {
    std::weak_ptr<StepCall> step;
    const void* owner;
    std::vector<std::function<void()>> watchers = {};
  };
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  std::unordered_map<int64_t, Entry> entries_;
  int64_t unanswered_ = 0;
};

}  // namespace troupe
