// SPDX-License-Identifier: Apache-2.0
// Numbers in the bytes of files: varints (seven bits a byte, lowest first) and little-endian words.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

inline void put_varint(std::string& out, uint64_t value) {
  for (; value >= 128; value >>= 7) out += static_cast<char>(value | 128);
  out += static_cast<char>(value);
}

/// Takes a varint from the front of `bytes`; nothing where there is none of at most 64 bits.
inline std::optional<uint64_t> take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size() && i < 10; ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    if (i == 9 && byte > 1) return {};
    value |= uint64_t{byte & 127u} << (7 * i);
    if (byte < 128) {
      bytes.remove_prefix(i + 1);
      return value;
    }
  }
  return {};
}

inline void put_word(std::string& out, uint32_t value) {
  for (int i = 0; i < 4; ++i) out += static_cast<char>(value >> (8 * i));
}

/// The word at the front of `bytes`, which holds one.
inline uint32_t word_at(std::string_view bytes) {
  uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = value << 8 | static_cast<uint8_t>(bytes[static_cast<size_t>(i)]);
  return value;
}

}  // namespace troupe
