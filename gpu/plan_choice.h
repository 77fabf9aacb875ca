// SPDX-License-Identifier: Apache-2.0
// PlanChoice: which of several ways to do the same work is the quickest on a card, found while the work is done, so
// that nobody waits for the card.
//
// Each way is called twice, by the first calls that come: the first time loads its code, the second is timed. Times are
// read when a later call finds them there. Then the quickest is called for good.
#pragma once
#include <limits>
#include <optional>
#include <vector>

#include "gpu/timed_work.h"

namespace troupe::gpu {

/// One thread at a time.
class PlanChoice {
 public:
  /// Of so many ways, at least one, that which is thought best first. `events` may be null: then it is taken.
  PlanChoice(size_t ways, std::shared_ptr<TimedEvents> events) : ways_(ways), events_(std::move(events)) {}

  /// Does the work once: run(way) puts it into `stream`. A way that fails is left out from then on, and another takes
  /// its place. Errors: that of the last way there is, which stays. `may_time`: false where no event may be recorded.
  template <class F> Status call(Stream& stream, F&& run, bool may_time = true) {
    read();
    for (;;) {
      const size_t at = may_time && events_ ? next() : best();
      Way& way = ways_[at];
      std::unique_ptr<TimedWork> timed;
      if (may_time && events_ && way.calls == 1) timed = std::make_unique<TimedWork>(events_);
      if (timed) timed->begin(stream);
      Status status = run(at);
      if (timed) timed->end(stream);
      if (status.ok()) {
        if (may_time && way.calls < kCalls) ++way.calls;
        if (timed) way.timed = std::move(timed);
        return status;
      }
      if (left() == 1) return status;
      way.failed = true;
    }
  }
  /// The way that all calls take from now on; nothing before.
  std::optional<size_t> chosen() const {
    if (left() > 1 && events_)
      for (const Way& way : ways_)
        if (!way.failed && (way.calls < kCalls || way.timed)) return {};
    return best();
  }

 private:
  static constexpr int kCalls = 2;
  struct Way {
    int calls = 0;
    bool failed = false;
    std::unique_ptr<TimedWork> timed;                     // not read yet
    double us = std::numeric_limits<double>::infinity();  // also of one that could not be timed
  };

  size_t left() const {
    size_t out = 0;
    for (const Way& way : ways_) out += !way.failed;
    return out;
  }
  void read() {
    for (Way& way : ways_)
      if (way.timed && way.timed->done()) {
        way.us = way.timed->us().value_or(way.us);
        way.timed.reset();
      }
  }
  /// The first that was not called often enough, else the best.
  size_t next() const {
    if (left() > 1)
      for (size_t i = 0; i < ways_.size(); ++i)
        if (!ways_[i].failed && ways_[i].calls < kCalls) return i;
    return best();
  }
  /// The quickest as far as is known, else the first.
  size_t best() const {
    std::optional<size_t> out;
    for (size_t i = 0; i < ways_.size(); ++i)
      if (!ways_[i].failed && (!out || ways_[i].us < ways_[*out].us)) out = i;
    return *out;
  }

  std::vector<Way> ways_;
  const std::shared_ptr<TimedEvents> events_;
};

}  // namespace troupe::gpu
