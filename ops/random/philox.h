// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10, a counter-based random generator, and the numbers that are made of its words as TensorFlow makes them,
// so that a graph's seeds give what they give there. For the host and for GPUs. Source: Salmon, Moraes, Dror, Shaw,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <type_traits>

#include "base/host_device.h"

namespace troupe {

/// A block of four random words is a function of a key and a counter of 128 bits alone, so any thread can make any part
/// of what follows from them.
class Philox {
 public:
  using Block = std::array<uint32_t, 4>;
  /// The counter of block 0 has the halves `high` and `low`.
  TROUPE_HOST_DEVICE Philox(uint64_t key, uint64_t high, uint64_t low = 0) : key_(key), high_(high), low_(low) {}

  [[gnu::always_inline]] TROUPE_HOST_DEVICE Block operator()(uint64_t index) const {
    const uint64_t low = low_ + index, high = high_ + (low < index);
    uint32_t c0 = static_cast<uint32_t>(low), c1 = static_cast<uint32_t>(low >> 32);
    uint32_t c2 = static_cast<uint32_t>(high), c3 = static_cast<uint32_t>(high >> 32);
    uint32_t k0 = static_cast<uint32_t>(key_), k1 = static_cast<uint32_t>(key_ >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53} * c0, p1 = uint64_t{0xCD9E8D57} * c2;
      c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
      c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c1 = static_cast<uint32_t>(p1);
      c3 = static_cast<uint32_t>(p0);
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    return {c0, c1, c2, c3};
  }
  /// The generator whose block 0 is block `index` of this one.
  TROUPE_HOST_DEVICE Philox from(uint64_t index) const { return {key_, high_ + (low_ + index < index), low_ + index}; }

 private:
  uint64_t key_, high_, low_;
};

// Numbers in [0, 1) of as many bits as the mantissa of a type has, from the lowest of a word or two.
TROUPE_HOST_DEVICE inline float uniform_float(uint32_t word) { return static_cast<float>(word & 0x7fffff) * 0x1p-23f; }
TROUPE_HOST_DEVICE inline double uniform_double(uint32_t high, uint32_t low) {
  return static_cast<double>(uint64_t{high & 0xfffff} << 32 | low) * 0x1p-52;
}

/// Two independent normal numbers from two uniform ones, by Box and Muller's method.
template <class A> TROUPE_HOST_DEVICE std::array<A, 2> normal_pair(A u, A v) {
  const A radius = std::sqrt(A(-2) * std::log(std::max(u, A(1e-7))));
  const A angle = static_cast<A>(2 * std::numbers::pi * v);
  return {std::sin(angle) * radius, std::cos(angle) * radius};
}
TROUPE_HOST_DEVICE inline std::array<double, 2> normal_doubles(const Philox::Block& w) {
  return normal_pair(uniform_double(w[0], w[1]), uniform_double(w[2], w[3]));
}

/// How many floats or doubles one block of words makes.
template <class A> inline constexpr int kOfBlock = std::is_same_v<A, double> ? 2 : 4;

/// Those that a block makes, uniform and normal ones.
template <class A> TROUPE_HOST_DEVICE std::array<A, kOfBlock<A>> uniforms(const Philox::Block& w) {
  if constexpr (std::is_same_v<A, double>) return {uniform_double(w[0], w[1]), uniform_double(w[2], w[3])};
  else return {uniform_float(w[0]), uniform_float(w[1]), uniform_float(w[2]), uniform_float(w[3])};
}
template <class A> TROUPE_HOST_DEVICE std::array<A, kOfBlock<A>> normals(const Philox::Block& w) {
  if constexpr (std::is_same_v<A, double>) {
    return normal_doubles(w);
  } else {
    const auto [a, b] = normal_pair(uniform_float(w[0]), uniform_float(w[1]));
    const auto [c, d] = normal_pair(uniform_float(w[2]), uniform_float(w[3]));
    return {a, b, c, d};
  }
}

}  // namespace troupe
