// SPDX-License-Identifier: Apache-2.0
// Where the numbers of a random node come from: its seeds, and what its runs took before.
#pragma once
#include <algorithm>
#include <array>
#include <mutex>
#include <random>

#include "ops/random/distributions.h"
#include "troupe/kernel.h"

namespace troupe {

/// Spreads the bits of a seed (the finalizer of splitmix64: Steele, Lea, Flood, 2014).
inline uint64_t mix_bits(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

/// Attributes seed and seed2 of a node; seeds that nobody knows where both are 0, or there are none.
inline std::array<uint64_t, 2> seeds_of(const KernelInit& init) {
  std::array<uint64_t, 2> out = {static_cast<uint64_t>(init.attrs->get_or("seed", int64_t{0})),
                                 static_cast<uint64_t>(init.attrs->get_or("seed2", int64_t{0}))};
  if (out[0] == 0 && out[1] == 0) {
    std::random_device device;
    for (uint64_t& seed : out) seed = uint64_t{device()} << 32 | device();
  }
  return out;
}

/// The random numbers of one node, whose attributes are seed and seed2: for each call those after the last one's, as in
/// TensorFlow. Thread-safe.
class Streams {
 public:
  explicit Streams(const KernelInit& init) : seeds_(seeds_of(init)), next_(seeds_[0], seeds_[1]) {}
  /// A generator of which the caller uses no more than `blocks`.
  Philox next(const KernelContext& context, int64_t blocks) {
    const int64_t step = context.random_step();
    std::lock_guard guard(mutex_);
    if (step >= 0) {
      const uint64_t key = mix_bits(mix_bits(seeds_[0]) ^ seeds_[1]) ^ mix_bits(static_cast<uint64_t>(step));
      return Philox(mix_bits(key), run(context.step()).calls++);
    }
    return std::exchange(next_, next_.from(static_cast<uint64_t>(blocks)));
  }

 private:
  struct Run {
    int64_t id = -1;
    uint64_t calls = 0;
  };
  /// That run, if it is among the last few that came, else a new one in place of the one that came first.
  Run& run(int64_t id) {
    if (const auto known = std::ranges::find(runs_, id, &Run::id); known != runs_.end()) return *known;
    Run& fresh = runs_[oldest_++ % runs_.size()];
    fresh = {id, 0};
    return fresh;
  }

  const std::array<uint64_t, 2> seeds_;
  std::mutex mutex_;  // guards what follows
  Philox next_;
  std::array<Run, 8> runs_;  // those at once
  size_t oldest_ = 0;
};

}  // namespace troupe
