// SPDX-License-Identifier: Apache-2.0
#include "actors/step_table.h"

namespace troupe {

void StepTable::add(const StepRef& step, const void* owner) {
  std::lock_guard guard(mutex_);
  entries_.emplace(step->id, Entry{step, owner});
  ++unanswered_;
}

void StepTable::reserve(int64_t id, const void* owner) {
  std::lock_guard guard(mutex_);
  entries_.emplace(id, Entry{{}, owner});
  ++unanswered_;
}

void StepTable::set(const StepRef& step) {
  std::lock_guard guard(mutex_);
  if (const auto at = entries_.find(step->id); at != entries_.end()) at->second.step = step;
}

void StepTable::ended(int64_t id) {
  decltype(entries_)::node_type entry;
  {
    std::lock_guard guard(mutex_);
    entry = entries_.extract(id);
  }
  if (entry)
    for (const auto& then : entry.mapped().watchers) then();
}

void StepTable::will_answer() {
  std::lock_guard guard(mutex_);
  ++unanswered_;
}

void StepTable::answered() {
  std::lock_guard guard(mutex_);
  if (--unanswered_ == 0) idle_.notify_all();
}

bool StepTable::is_running(int64_t id) const {
  std::lock_guard guard(mutex_);
  return entries_.contains(id);
}

bool StepTable::watch(int64_t id, std::function<void()> then) {
  std::lock_guard guard(mutex_);
  const auto at = entries_.find(id);
  if (at == entries_.end()) return false;
  at->second.watchers.push_back(std::move(then));
  return true;
}

StepRef StepTable::find(int64_t id) const {
  std::lock_guard guard(mutex_);
  const auto at = entries_.find(id);
  return at == entries_.end() ? StepRef() : at->second.step.lock();
}

std::vector<StepRef> StepTable::running(const void* owner) const {
  std::vector<StepRef> out;
  std::lock_guard guard(mutex_);
  for (const auto& [id, entry] : entries_)
    if (!owner || entry.owner == owner)
      if (StepRef step = entry.step.lock()) out.push_back(std::move(step));
  return out;
}

void StepTable::wait_until_answered() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return unanswered_ == 0; });
}

}  // namespace troupe
