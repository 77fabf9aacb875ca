// SPDX-License-Identifier: Apache-2.0
// What a test asked a fake for, to come about at a later call.
#pragma once
#include <optional>
#include <vector>

namespace troupe::gpu {

/// At a call that `is_for` is true of: counts down `after` of each, and takes out those that are due. Of several the
/// last one asked for.
template <class T, class F> std::optional<T> take_due(std::vector<T>& waiting, F&& is_for) {
  std::optional<T> out;
  std::erase_if(waiting, [&](T& one) {
    if (!is_for(one) || --one.after > 0) return false;
    out = one;
    return true;
  });
  return out;
}

}  // namespace troupe::gpu
