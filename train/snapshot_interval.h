// SPDX-License-Identifier: Apache-2.0
// How often what a run goes back to is taken.
#pragma once
#include <algorithm>
#include <chrono>

#include "troupe/train.h"

namespace troupe::nn {

/// How long after a snapshot that took `took` the next one is due.
inline std::chrono::nanoseconds snapshot_interval(const RecoveryOptions& options, std::chrono::nanoseconds took) {
  if (options.snapshot_interval > std::chrono::nanoseconds(0)) return options.snapshot_interval;
  using std::chrono::seconds;
  return std::clamp<std::chrono::nanoseconds>(100 * std::min<std::chrono::nanoseconds>(took, seconds(1)), seconds(1),
                                              seconds(30));
}

}  // namespace troupe::nn
