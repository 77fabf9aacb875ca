// SPDX-License-Identifier: Apache-2.0
// TimedWork: how long a card takes for what is put into a stream between two calls, by two timed events around it.
#pragma once
#include <memory>
#include <mutex>
#include <optional>

#include "gpu/event_pool.h"

namespace troupe::gpu {

/// The timed events of one card that its timed work takes and gives back. Thread-safe.
class TimedEvents {
 public:
  TimedEvents(std::shared_ptr<Runtime> runtime, int card)
      : runtime_(std::move(runtime)), pool_(*runtime_, card, true) {}

 private:
  friend class TimedWork;
  const std::shared_ptr<Runtime> runtime_;
  EventPool pool_;
  std::mutex at_work_;  // of whoever puts in what is timed, so that others who time theirs do not get between
};

/// One piece of work. One thread at a time; begin() and end() are the same thread's. Where an event cannot be had or
/// recorded the work is not timed, and nothing else comes of it. It may go at any time, also before the work is done.
class TimedWork {
 public:
  explicit TimedWork(std::shared_ptr<TimedEvents> events) : events_(std::move(events)) {}
  ~TimedWork() {
    for (std::unique_ptr<Event>* event : {&begin_, &end_})
      if (*event) events_->pool_.give_back(std::move(*event));
  }
  TimedWork(const TimedWork&) = delete;

  void begin(Stream& stream) {
    at_work_ = std::unique_lock(events_->at_work_);
    begin_ = recorded(stream);
  }
  void end(Stream& stream) {
    if (begin_) end_ = recorded(stream);
    at_work_.unlock();
  }
  /// Whether nothing is to be waited for any more: the work is done, or lost with its card, or was not timed.
  bool done() const {
    if (!end_) return true;
    const auto done = end_->done();
    return !done.ok() || *done;
  }
  /// Microseconds from begin() to end() on the card; nothing where the work is not done yet or was not timed.
  std::optional<double> us() const {
    if (!end_) return {};
    const auto done = end_->done();
    return done.ok() && *done ? known(end_->us_since(*begin_)) : std::nullopt;
  }
  /// Microseconds from the begin of other work of the card to that of this, if that came later below 0. Both have us().
  std::optional<double> us_after(const TimedWork& first) const {
    return begin_ && first.begin_ ? known(begin_->us_since(*first.begin_)) : std::nullopt;
  }

 private:
  static std::optional<double> known(Result<double> us) { return us.ok() ? std::optional(*us) : std::nullopt; }
  std::unique_ptr<Event> recorded(Stream& stream) {
    auto event = events_->pool_.take();
    if (!event.ok()) return nullptr;
    if (stream.record(**event).ok()) return std::move(*event);
    events_->pool_.give_back(std::move(*event));
    return nullptr;
  }

  const std::shared_ptr<TimedEvents> events_;
  std::unique_ptr<Event> begin_, end_;
  std::unique_lock<std::mutex> at_work_;
};

}  // namespace troupe::gpu
