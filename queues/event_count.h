// SPDX-License-Identifier: Apache-2.0
// EventCount: counts events; who awaits a count is answered once it is reached. Implemented in queues/event_count.cpp.
// Source: Reed and Kanodia, Synchronization with Eventcounts and Sequencers, 1979.
#pragma once
#include <map>
#include <memory>

#include "troupe/resource.h"

namespace troupe {

/// A passive core (see Resource): its host calls it, one call at a time. The count begins at 0 and never falls.
class EventCount final : public Resource {
 public:
  static Result<std::unique_ptr<Resource>> make() { return std::unique_ptr<Resource>(new EventCount); }
  /// Replies, with nothing, once the count is at least `count`: at once if it is already.
  void await(int64_t count, Reply reply);
  /// Counts one event; those that awaited it are answered in the order of their counts, then of asking.
  void advance();
  int64_t count() const { return count_; }

  void cancel(uint64_t requester, int64_t step) override;

 private:
  int64_t count_ = 0;
  std::multimap<int64_t, Reply> waiting_;  // by the count that they await, above count_
};

}  // namespace troupe
