// SPDX-License-Identifier: Apache-2.0
// Where the numbers of a random node come from: its seeds, and how often it ran.
#pragma once
#include <algorithm>
#include <array>
#include <mutex>
#include <random>

#include "ops/philox.h"
#include "troupe/kernel.h"

namespace troupe {

/// Spreads the bits of a seed (the finalizer of splitmix64: Steele, Lea, Flood, 2014).
inline uint64_t mix_bits(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}
inline uint64_t key_from(int64_t seed, int64_t seed2) {
  return mix_bits(mix_bits(static_cast<uint64_t>(seed)) ^ static_cast<uint64_t>(seed2));
}

/// The random streams of one node, whose attributes are seed and seed2: the next for each call. Thread-safe.
class Streams {
 public:
  explicit Streams(const KernelInit& init) {
    const int64_t seed = init.attr<int64_t>("seed"), seed2 = init.attr<int64_t>("seed2");
    if (seed == 0 && seed2 == 0) {
      std::random_device device;
      key_ = uint64_t{device()} << 32 | device();
    } else {
      key_ = key_from(seed, seed2);
    }
  }
  Philox next(const KernelContext& context) {
    const int64_t step = context.random_step();
    std::lock_guard guard(mutex_);
    if (step < 0) return Philox(key_, calls_++);
    return Philox(mix_bits(key_ ^ mix_bits(static_cast<uint64_t>(step))), run(context.step()).calls++);
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

  uint64_t key_;
  std::mutex mutex_;  // guards what follows
  uint64_t calls_ = 0;
  std::array<Run, 8> runs_;  // those at once
  size_t oldest_ = 0;
};

}  // namespace troupe
