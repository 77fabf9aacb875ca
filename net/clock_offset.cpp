// SPDX-License-Identifier: Apache-2.0
#include "net/clock_offset.h"

#include <algorithm>
#include <cstdlib>

namespace troupe::net {
namespace {

/// Two clocks of quartz drift apart by less: one nanosecond in so many.
constexpr int64_t kDrift = 5000;
/// Of times that mean something, so that no difference overflows.
constexpr int64_t kFarthest = INT64_MAX / 4;

}  // namespace

void ClockOffset::add(int64_t sent, int64_t came, int64_t answered, int64_t heard) {
  for (const int64_t time : {sent, came, answered, heard})
    if (time < -kFarthest || time > kFarthest) return;
  const int64_t low = answered - heard, high = came - sent;
  if (low > high || heard < sent || answered < came) return;
  const int64_t drift = heard_ ? std::max<int64_t>(heard - *heard_, 0) / kDrift + 1 : 0;
  const bool agrees = heard_ && low <= high_ + drift && low_ - drift <= high;
  // Else a clock was set, or stood still while the machine slept.
  low_ = agrees ? std::max(low, low_ - drift) : low;
  high_ = agrees ? std::min(high, high_ + drift) : high;
  heard_ = heard;
}

std::optional<int64_t> ClockOffset::offset_ns() const {
  if (!heard_) return {};
  return low_ + (high_ - low_) / 2;
}

}  // namespace troupe::net
