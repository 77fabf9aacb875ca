// SPDX-License-Identifier: Apache-2.0
// As many random numbers as one element of a result takes, one after the other.
#pragma once
#include "ops/philox.h"

namespace troupe {

/// The numbers of one element of a result, those of no other. Of one thread.
class Draws {
 public:
  Draws(const Philox& random, int64_t element) : random_(random), element_(static_cast<uint64_t>(element)) {}
  /// In [0, 1).
  double uniform() {
    const uint32_t high = word();
    return uniform_double(high, word());
  }
  /// A whole number in [0, n), n above 0.
  int64_t below(int64_t n) {
    const uint64_t high = word(), low = word();
    return static_cast<int64_t>(static_cast<unsigned __int128>(high << 32 | low) * static_cast<uint64_t>(n) >> 64);
  }
  double normal() {
    const uint32_t a = word();
    return normal_pair(a, word())[0];
  }

 private:
  uint32_t word() {
    if (next_ == block_.size()) {
      block_ = random_(element_ | blocks_++ << 48);
      next_ = 0;
    }
    return block_[next_++];
  }

  const Philox random_;
  const uint64_t element_;
  uint64_t blocks_ = 0;
  Philox::Block block_ = {};
  size_t next_ = block_.size();
};

}  // namespace troupe
