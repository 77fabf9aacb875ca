// SPDX-License-Identifier: Apache-2.0
// WorkTimer: how long a device takes for work that it runs on with when its node counts as done.
#pragma once
#include <cstdint>
#include <optional>

namespace troupe {

/// Made by Device::timer(). One thread at a time; begin() and end() are called by the thread that puts the work in,
/// right before and after, and not in between other calls of theirs. It may go at any time.
class WorkTimer {
 public:
  virtual ~WorkTimer() = default;
  virtual void begin() = 0;
  virtual void end() = 0;
  /// Nanoseconds that the device took; nothing while the work is not done, or if it could not be timed.
  virtual std::optional<double> ns() const = 0;
  /// Nanoseconds by which the work began after, or if negative before, that of another timer of the device. Both have
  /// ns().
  virtual std::optional<double> ns_after(const WorkTimer& first) const = 0;

  int64_t asked_ns = 0;  // when the work had not been put in yet, of the host's clock
};

}  // namespace troupe
