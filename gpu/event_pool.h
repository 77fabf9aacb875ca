// SPDX-License-Identifier: Apache-2.0
// EventPool: events of one card that are used again, since making one takes a card longer than recording it.
#pragma once
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "gpu/runtime.h"

namespace troupe::gpu {

/// Thread-safe. The runtime outlives it.
class EventPool {
 public:
  EventPool(Runtime& runtime, int card, bool timed = false) : runtime_(runtime), card_(card), timed_(timed) {}

  Result<std::unique_ptr<Event>> take() {
    {
      std::lock_guard guard(mutex_);
      if (!events_.empty()) {
        auto event = std::move(events_.back());
        events_.pop_back();
        return event;
      }
    }
    return runtime_.make_event(card_, timed_);
  }
  /// One that nobody looks at any more. Streams may still wait for what it marked.
  void give_back(std::unique_ptr<Event> event) {
    std::lock_guard guard(mutex_);
    events_.push_back(std::move(event));
  }

 private:
  Runtime& runtime_;
  const int card_;
  const bool timed_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Event>> events_;
};

}  // namespace troupe::gpu
