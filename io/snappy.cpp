// SPDX-License-Identifier: Apache-2.0
// A block: the size of what it stands for as a varint; then literals, and copies of what came before.
#include "io/snappy.h"

#include "io/varint.h"

namespace troupe {

std::optional<std::string> unpack_snappy(std::string_view packed) {
  const size_t all = packed.size();
  const auto size = take_varint(packed);
  // A copy of three bytes stands for 64 at most.
  if (!size || *size > uint64_t{64} * all) return {};
  std::string out;
  out.reserve(*size);
  // The number in the next bytes, lowest first.
  const auto take = [&packed](size_t bytes) -> std::optional<size_t> {
    if (packed.size() < bytes) return {};
    size_t value = 0;
    for (size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<uint8_t>(packed[i]);
    packed.remove_prefix(bytes);
    return value;
  };
  while (!packed.empty()) {
    const size_t tag = *take(1), kind = tag & 3;
    if (kind == 0) {
      size_t length = tag >> 2;
      if (length >= 60) {
        const auto longer = take(length - 59);
        if (!longer) return {};
        length = *longer;
      }
      if (length >= packed.size() || length >= *size - out.size()) return {};
      out += packed.substr(0, length + 1);
      packed.remove_prefix(length + 1);
      continue;
    }
    const size_t length = kind == 1 ? (tag >> 2 & 7) + 4 : (tag >> 2) + 1;
    const auto rest = take(kind == 3 ? 4 : kind);
    if (!rest) return {};
    const size_t back = kind == 1 ? *rest | (tag >> 5) << 8 : *rest;
    if (back == 0 || back > out.size() || length > *size - out.size()) return {};
    // The copy may reach into itself.
    for (size_t i = 0; i < length; ++i) out += out[out.size() - back];
  }
  if (out.size() != *size) return {};
  return out;
}

std::string literal_snappy(std::string_view bytes) {
  std::string out;
  put_varint(out, bytes.size());
  if (bytes.empty()) return out;
  const size_t length = bytes.size() - 1;
  out += static_cast<char>(61 << 2);  // a literal, whose length is in two bytes
  out += static_cast<char>(length);
  out += static_cast<char>(length >> 8);
  out += bytes;
  return out;
}

}  // namespace troupe
