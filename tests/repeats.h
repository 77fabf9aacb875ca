// SPDX-License-Identifier: Apache-2.0
// How often tests repeat what they draw at random, and how large they make what must not grow too fast.
#pragma once

namespace troupe {

/// n, or a quarter of it, but once at least, under a sanitizer, where all takes 10 to 25 times as long.
constexpr int repeats(int n) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return n < 4 ? 1 : n / 4;
#else
  return n;
#endif
}

/// n, or a tenth of it under a sanitizer, of what a test makes many.
constexpr int many(int n) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return n / 10;
#else
  return n;
#endif
}

/// Whether case `i` of many alike runs: each, or under a sanitizer about a third, whatever loops they come from.
constexpr bool runs_case(unsigned i) { return many(10) == 10 || (i * 2654435761U >> 16) % 3 == 0; }

/// How much slower all is here than in a release, at most: for bounds that tell linear time from quadratic.
constexpr double kSlowness = many(10) == 10 ? 1 : 20;

}  // namespace troupe
