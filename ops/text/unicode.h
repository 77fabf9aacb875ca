// SPDX-License-Identifier: Apache-2.0
// Code points of Unicode in their encodings. Implemented in ops/text/unicode.cpp. Source: The Unicode Standard, 3.9.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "troupe/error.h"

namespace troupe {

/// What stands for bytes that encode no character.
inline constexpr int32_t kReplacement = 0xFFFD;
inline constexpr int32_t kMostCodePoint = 0x10FFFF;

/// The code point at s[at], which moves behind it; -1 for bytes that encode none, of which it passes over as many as
/// might have begun one. `at` is within s.
using DecodeOne = int32_t (*)(std::string_view s, size_t& at);
int32_t utf8_code_point(std::string_view s, size_t& at);

/// Appends a code point, which is in [0, kMostCodePoint] and not half of a pair of UTF-16.
using EncodeOne = void (*)(int32_t code, std::string& out);
void append_utf8(int32_t code, std::string& out);

/// Those of an encoding by name: UTF-8, UTF-16 and UTF-32 big and little endian, ISO-8859-1, US-ASCII; case, '-', '_'
/// and spaces do not count. Error: kUnimplemented for another one.
Result<DecodeOne> decoder_of(const std::string& encoding);
/// Of UTF-8, UTF-16-BE and UTF-32-BE.
Result<EncodeOne> encoder_of(const std::string& encoding);

}  // namespace troupe
