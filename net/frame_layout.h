// SPDX-License-Identifier: Apache-2.0
// What the writer and the reader of a frame share: places in its layout, and numbers as they lie there.
// docs/wire_protocol.md draws it.
#pragma once
#include <bit>
#include <cstddef>
#include <cstring>

#include "net/frame.h"

namespace troupe::net {

/// Where in the header its CRC-32 is, of all bytes before.
inline constexpr size_t kChecksumAt = FrameHeader::kBytes - 4;

static_assert(std::endian::native == std::endian::little, "numbers and tensors travel as they are in memory");

template <class T> void put_number(char* to, T value) { std::memcpy(to, &value, sizeof value); }
template <class T> T load_number(const char* from) {
  T out;
  std::memcpy(&out, from, sizeof out);
  return out;
}

}  // namespace troupe::net
