// SPDX-License-Identifier: Apache-2.0
// Errands: what other threads have a thread do that waits in poll(2), in the order in which they asked.
#pragma once
#include <sys/eventfd.h>

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "actors/sockets.h"

namespace troupe {

/// Thread-safe. May outlive its thread, where others still want to add.
class Errands {
 public:
  Errands() : wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
  bool can_wake() const { return static_cast<bool>(wake_); }
  int fd() const { return wake_.get(); }

  void add(std::function<void()> errand) {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    errands_.push_back(std::move(errand));
    if (errands_.size() == 1) eventfd_write(wake_.get(), 1);
  }
  std::vector<std::function<void()>> take() {
    const std::lock_guard lock(mutex_);
    eventfd_t ignored;
    if (!errands_.empty()) eventfd_read(wake_.get(), &ignored);
    return std::exchange(errands_, {});
  }
  bool ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  /// Ends the thread's loop; nothing is added any more.
  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    eventfd_write(wake_.get(), 1);
  }
  /// Once the thread has gone.
  void close() {
    const auto unused = take();
    const std::lock_guard lock(mutex_);
    wake_ = Descriptor();
  }

 private:
  std::mutex mutex_;
  Descriptor wake_;
  bool ended_ = false;
  std::vector<std::function<void()>> errands_;
};

}  // namespace troupe
