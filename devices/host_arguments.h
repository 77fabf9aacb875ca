// SPDX-License-Identifier: Apache-2.0
// Reading KernelRegistry::HostMemory: which arguments its lists name, and the number that names all of them.
#pragma once
#include <algorithm>
#include <limits>
#include <vector>

namespace troupe {

/// In a list of KernelRegistry::HostMemory: every argument, of ops that have any number of them.
inline constexpr int kEveryArgument = std::numeric_limits<int>::min();

/// The first half of the arguments, of ops that have as many of one sort as of another.
inline constexpr int kFirstHalf = kEveryArgument + 1;

/// Whether such a list names argument `index` of `count`.
inline bool names_argument(const std::vector<int>& list, int index, int count) {
  return std::ranges::any_of(list, [&](int i) {
    if (i == kFirstHalf) return 2 * index < count;
    return i == kEveryArgument || (i < 0 ? count + i : i) == index;
  });
}

}  // namespace troupe
