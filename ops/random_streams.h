// SPDX-License-Identifier: Apache-2.0
// Where the numbers of a random node come from: its seeds, and what its runs took before.
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

/// What is left for an element of a result where it is not known how many numbers it takes.
constexpr int64_t kBlocksOfElement = 256;

/// The random numbers of one node, whose attributes are seed and seed2: for each call those after the last one's, as in
/// TensorFlow. Thread-safe.
class Streams {
 public:
  explicit Streams(const KernelInit& init)
      : seed_(static_cast<uint64_t>(init.attr<int64_t>("seed"))),
        seed2_(static_cast<uint64_t>(init.attr<int64_t>("seed2"))), next_(0, 0) {
    if (seed_ == 0 && seed2_ == 0) {
      std::random_device device;
      for (uint64_t* seed : {&seed_, &seed2_}) *seed = uint64_t{device()} << 32 | device();
    }
    next_ = Philox(seed_, seed2_);
  }
  /// A generator of which the caller uses no more than `blocks`.
  Philox next(const KernelContext& context, int64_t blocks) {
    const int64_t step = context.random_step();
    std::lock_guard guard(mutex_);
    if (step >= 0) {
      const uint64_t key = mix_bits(mix_bits(seed_) ^ seed2_) ^ mix_bits(static_cast<uint64_t>(step));
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

  uint64_t seed_, seed2_;
  std::mutex mutex_;  // guards what follows
  Philox next_;
  std::array<Run, 8> runs_;  // those at once
  size_t oldest_ = 0;
};

}  // namespace troupe
