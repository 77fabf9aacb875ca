// SPDX-License-Identifier: Apache-2.0
// ClockOffset: how far another process's clock is from ours, from questions and answers. Passive; one thread at a time.
// Implemented in net/clock_offset.cpp.
//
// A question cannot come before it was sent, nor an answer be heard before it was given. So each exchange bounds the
// offset from both sides, by as much as the way there and back took, and several bound it more closely than any of
// them. Bounds widen as they age, since clocks drift. Source: Marzullo's algorithm as in NTP (RFC 5905), of one source.
#pragma once
#include <cstdint>
#include <optional>

namespace troupe::net {

class ClockOffset {
 public:
  /// What was sent at `sent` of our clock came at `came` of the other's; its answer, of `answered`, was heard at
  /// `heard`. Nanoseconds. What cannot be is passed over.
  void add(int64_t sent, int64_t came, int64_t answered, int64_t heard);
  /// What the other clock shows more than ours; none: nothing was added.
  std::optional<int64_t> offset_ns() const;
  /// The offset is that much wrong at most, as of the last add().
  int64_t error_ns() const { return (high_ - low_ + 1) / 2; }

 private:
  int64_t low_ = 0, high_ = 0;
  std::optional<int64_t> heard_;  // last
};

}  // namespace troupe::net
