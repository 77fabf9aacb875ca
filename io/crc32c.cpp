// SPDX-License-Identifier: Apache-2.0
// CRC-32C: one byte at a time from a table, eight at a time with SSE 4.2.
#include "io/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace troupe {
namespace {

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ (c & 1 ? 0x82f63b78u : 0);
    table[i] = c;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = make_crc_table();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t crc32c_sse(const void* data, size_t bytes, uint32_t crc) {
  const auto* at = static_cast<const unsigned char*>(data);
  uint64_t c = ~crc;
  for (; bytes >= 8; bytes -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    c = _mm_crc32_u64(c, word);
  }
  auto low = static_cast<uint32_t>(c);
  for (; bytes > 0; --bytes) low = _mm_crc32_u8(low, *at++);
  return ~low;
}
#endif

}  // namespace

uint32_t crc32c_portable(const void* data, size_t bytes, uint32_t crc) {
  const auto* at = static_cast<const unsigned char*>(data);
  crc = ~crc;
  for (; bytes > 0; --bytes) crc = kTable[(crc ^ *at++) & 0xff] ^ (crc >> 8);
  return ~crc;
}

uint32_t crc32c(const void* data, size_t bytes, uint32_t crc) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return crc32c_sse(data, bytes, crc);
#endif
  return crc32c_portable(data, bytes, crc);
}

}  // namespace troupe
