// SPDX-License-Identifier: Apache-2.0
// MurmurHash64A with the seed that TensorFlow's Hash64 has: buckets of strings mean the same here as there.
#pragma once
#include <cstdint>
#include <cstring>
#include <string_view>

namespace troupe {

inline uint64_t murmur(std::string_view text) {
  constexpr uint64_t kMul = 0xc6a4a7935bd1e995, kSeed = 0xDECAFCAFFE;
  const auto load = [&](size_t at, size_t n) {  // the n bytes from there on, the first lowest
    uint64_t out = 0;
    std::memcpy(&out, text.data() + at, n);
    return out;
  };
  const auto mix_shift = [](uint64_t x) { return x ^ (x >> 47); };
  uint64_t h = kSeed ^ text.size() * kMul;
  size_t at = 0;
  for (; at + 8 <= text.size(); at += 8) h = (h ^ mix_shift(load(at, 8) * kMul) * kMul) * kMul;
  if (at < text.size()) h = (h ^ load(at, text.size() - at)) * kMul;
  return mix_shift(mix_shift(h) * kMul);
}

}  // namespace troupe
