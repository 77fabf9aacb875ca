// SPDX-License-Identifier: Apache-2.0
// Random numbers one after the other, for results that take a number of them that is not known before. The order is
// TensorFlow's.
#pragma once
#include "ops/random/philox.h"

namespace troupe {

/// The words of a generator in their order. Of one thread.
class Words {
 public:
  explicit Words(const Philox& random) : random_(random) {}
  uint32_t word() {
    if (next_ == block_.size()) {
      block_ = random_(blocks_++);
      next_ = 0;
    }
    return block_[next_++];
  }
  /// In [0, 1).
  float uniform_float() { return troupe::uniform_float(word()); }
  double uniform() {
    const uint32_t high = word();
    return uniform_double(high, word());
  }
  /// A whole number in [0, n), n above 0; of one word where n has 32 bits.
  uint32_t below(uint32_t n) {
    return below(n, [this] { return word(); });
  }
  uint64_t below(uint64_t n) {
    return below(n, [this] {
      const uint32_t low = word();
      return uint64_t{word()} << 32 | low;
    });
  }

 private:
  /// Words below the remainder of 2^bits by n would make some results more frequent.
  template <class U, class F> static U below(U n, const F& draw) {
    if ((n & (n - 1)) == 0) return draw() & (n - 1);
    const U least = static_cast<U>(~U(0) % n + 1);
    U drawn = draw();
    while (drawn < least) drawn = draw();
    return drawn % n;
  }

  const Philox random_;
  uint64_t blocks_ = 0;
  Philox::Block block_ = {};
  size_t next_ = block_.size();
};

/// Numbers of one element of a result: uniform and normal ones have blocks of their own, of which the second number
/// comes first. Of one thread.
class Draws {
 public:
  explicit Draws(const Philox& random) : random_(random) {}
  /// In [0, 1).
  double uniform() {
    if (uniforms_left_ == 0) {
      const Philox::Block w = random_(blocks_++);
      uniforms_ = {uniform_double(w[0], w[1]), uniform_double(w[2], w[3])};
      uniforms_left_ = 2;
    }
    return uniforms_[--uniforms_left_];
  }
  double normal() {
    if (normals_left_ == 0) {
      normals_ = normal_doubles(random_(blocks_++));
      normals_left_ = 2;
    }
    return normals_[--normals_left_];
  }

 private:
  const Philox random_;
  uint64_t blocks_ = 0;
  std::array<double, 2> uniforms_ = {}, normals_ = {};
  size_t uniforms_left_ = 0, normals_left_ = 0;
};

}  // namespace troupe
