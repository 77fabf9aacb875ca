// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10, a counter-based random generator. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as
// easy as 1, 2, 3", SC 2011.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace troupe {

/// A block of four random words is a function of key and counter alone, so any thread can make any part of a stream.
class Philox {
 public:
  using Block = std::array<uint32_t, 4>;
  /// `stream` picks one of 2^64 streams of 2^64 blocks under `key`.
  Philox(uint64_t key, uint64_t stream) : key_(key), stream_(stream) {}

  [[gnu::always_inline]] Block operator()(uint64_t index) const {
    uint32_t c0 = static_cast<uint32_t>(index), c1 = static_cast<uint32_t>(index >> 32);
    uint32_t c2 = static_cast<uint32_t>(stream_), c3 = static_cast<uint32_t>(stream_ >> 32);
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

 private:
  uint64_t key_, stream_;
};

/// In [0, 1), of 24 bits.
inline float uniform_float(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }
/// In [0, 1), of 53 bits.
inline double uniform_double(uint32_t high, uint32_t low) {
  return static_cast<double>((uint64_t{high} << 32 | low) >> 11) * 0x1p-53;
}
/// Two independent normal numbers from two words, by Box and Muller's method.
inline std::array<double, 2> normal_pair(uint32_t a, uint32_t b) {
  const double radius = std::sqrt(-2.0 * std::log((static_cast<double>(a) + 0.5) * 0x1p-32));
  const double angle = 2.0 * std::numbers::pi * (static_cast<double>(b) * 0x1p-32);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace troupe
