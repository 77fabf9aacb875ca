// SPDX-License-Identifier: Apache-2.0
// What elements of a random result are, four neighbours at a time: for the loops of CPUs and the threads of GPUs, which
// thereby give the same numbers.
#pragma once
#include "ops/parts/arithmetic.h"
#include "ops/random/philox.h"

namespace troupe {

/// What is left for an element of a result where it is not known how many numbers it takes.
inline constexpr int64_t kBlocksOfElement = 256;

// Each sets elements [4 g, 4 g + 4) of a result, of which `out` is the first.
namespace distributions {

struct Uniform {
  template <class T>
  [[gnu::always_inline]] TROUPE_HOST_DEVICE static inline void group(const Philox& random, int64_t g, T* out) {
    if constexpr (std::is_same_v<T, double>) {
      const Philox::Block a = random(static_cast<uint64_t>(2 * g)), b = random(static_cast<uint64_t>(2 * g + 1));
      out[0] = uniform_double(a[0], a[1]);
      out[1] = uniform_double(a[2], a[3]);
      out[2] = uniform_double(b[0], b[1]);
      out[3] = uniform_double(b[2], b[3]);
    } else {
      const Philox::Block w = random(static_cast<uint64_t>(g));
      for (int k = 0; k < 4; ++k) {
        if constexpr (std::is_same_v<T, float16>) out[k] = narrow<T>(static_cast<float>(w[k] & 0x3ff) * 0x1p-10f);
        else if constexpr (std::is_same_v<T, bfloat16>) out[k] = narrow<T>(static_cast<float>(w[k] & 0x7f) * 0x1p-7f);
        else out[k] = uniform_float(w[k]);
      }
    }
  }
};

struct Normal {
  template <class T>
  [[gnu::always_inline]] TROUPE_HOST_DEVICE static inline void group(const Philox& random, int64_t g, T* out) {
    constexpr int n = kOfBlock<Arithmetic<T>>;
    for (int64_t block = g * 4 / n; block < (g + 1) * 4 / n; ++block)
      for (const auto z : normals<Arithmetic<T>>(random(static_cast<uint64_t>(block)))) *out++ = narrow<T>(z);
  }
};

/// Normal numbers beyond two standard deviations are drawn again, for as many numbers as a block makes at a time.
struct Truncated {
  template <class T>
  [[gnu::always_inline]] TROUPE_HOST_DEVICE static inline void group(const Philox& random, int64_t g, T* out) {
    constexpr int n = kOfBlock<Arithmetic<T>>;
    constexpr int64_t left = kBlocksOfElement * n / 4;
    for (int64_t block = g * 4 / n; block < (g + 1) * 4 / n; ++block) {
      int filled = 0;
      for (int64_t attempt = block * left; filled < n; ++attempt)
        for (const auto z : normals<Arithmetic<T>>(random(static_cast<uint64_t>(attempt))))
          if (std::abs(z) < 2 && filled < n) ++filled, *out++ = narrow<T>(z);
    }
  }
};

}  // namespace distributions

/// Integers [low, low + range), wrapping around; range 0: all that a type holds.
struct IntRange {
  uint64_t low = 0, range = 0;
};
/// How many integers T a block of words makes.
template <class T> inline constexpr int kIntsOfBlock = static_cast<int>(16 / sizeof(T));
/// Integer i of those that a block makes, of type T.
template <class T> TROUPE_HOST_DEVICE inline T int_of_block(const Philox::Block& w, int i, IntRange r) {
  const uint64_t word = kIntsOfBlock<T> == 4 ? w[i] : uint64_t{w[i * 2 + 1]} << 32 | w[i * 2];
  return static_cast<T>(r.range ? r.low + word % r.range : word);
}

}  // namespace troupe
