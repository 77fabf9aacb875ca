// SPDX-License-Identifier: Apache-2.0
// The time of the steady clock as a number, for classes that get their time from outside.
#pragma once
#include <chrono>
#include <cstdint>

namespace troupe {

/// Nanoseconds; only differences mean anything. Any thread.
inline int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace troupe
