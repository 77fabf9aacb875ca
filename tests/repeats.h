// SPDX-License-Identifier: Apache-2.0
// How often tests repeat what they draw at random.
#pragma once

namespace troupe {

/// n, or a quarter of it under a sanitizer, where all takes 10 to 25 times as long.
constexpr int repeats(int n) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return n / 4;
#else
  return n;
#endif
}

}  // namespace troupe
