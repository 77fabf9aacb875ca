// SPDX-License-Identifier: Apache-2.0
// Sums and maxima over a row, taken in as many parts as a register has elements, so that loops with one vectorise.
#pragma once
#include <array>
#include <cstdint>
#include <limits>

namespace troupe {

inline constexpr int64_t kLanes = 16;

/// The sum of f(0) ... f(n - 1). The order of additions depends on n alone.
template <class T, class F> [[gnu::always_inline]] inline T sum_of(int64_t n, F&& f) {
  std::array<T, kLanes> lanes = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t j = 0; j < kLanes; ++j) lanes[static_cast<size_t>(j)] += f(i + j);
  for (; i < n; ++i) lanes[0] += f(i);
  T sum = 0;
  for (const T lane : lanes) sum += lane;
  return sum;
}

/// The largest of x[0] ... x[n - 1] that is a number, or minus infinity.
template <class T> [[gnu::always_inline]] inline T largest_of(const T* x, int64_t n) {
  std::array<T, kLanes> lanes;
  lanes.fill(-std::numeric_limits<T>::infinity());
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t j = 0; j < kLanes; ++j) {
      T& lane = lanes[static_cast<size_t>(j)];
      lane = x[i + j] > lane ? x[i + j] : lane;
    }
  for (; i < n; ++i) lanes[0] = x[i] > lanes[0] ? x[i] : lanes[0];
  T largest = lanes[0];
  for (const T lane : lanes) largest = lane > largest ? lane : largest;
  return largest;
}

}  // namespace troupe
