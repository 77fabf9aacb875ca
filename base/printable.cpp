// SPDX-License-Identifier: Apache-2.0
#include "base/printable.h"

namespace troupe {
namespace {

/// Whether a character of UTF-8 is one of control: below the space, delete, or from U+0080 to U+009F.
bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7F;
  return first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
}

void escape(char c, std::string& out) {
  constexpr char kDigits[] = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  if (c == '\n') out += "\\n";
  else if (c == '\t') out += "\\t";
  else if (c == '\r') out += "\\r";
  else out += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
}

}  // namespace

size_t utf8_character(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0; };
  const auto between = [&](size_t i, int first, int last) { return byte(i) >= first && byte(i) <= last; };
  const int lead = byte(0);
  if (text.empty()) return 0;
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return between(1, 0x80, 0xBF) ? 2 : 0;
  if (lead >= 0xE0 && lead <= 0xEF)
    return between(1, lead == 0xE0 ? 0xA0 : 0x80, lead == 0xED ? 0x9F : 0xBF) && between(2, 0x80, 0xBF) ? 3 : 0;
  if (lead >= 0xF0 && lead <= 0xF4)
    return between(1, lead == 0xF0 ? 0x90 : 0x80, lead == 0xF4 ? 0x8F : 0xBF) && between(2, 0x80, 0xBF) &&
                   between(3, 0x80, 0xBF)
               ? 4
               : 0;
  return 0;
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t bytes = utf8_character(text);
    const std::string_view character = text.substr(0, bytes == 0 ? 1 : bytes);
    if (bytes > 0 && !is_control(character)) out += character;
    else
      for (const char c : character) escape(c, out);
    text.remove_prefix(character.size());
  }
  return out;
}

std::string in_quotes(std::string_view text, char quote) {
  std::string out(1, quote);
  for (const char c : text) {
    if (c == quote || c == '\\') out += '\\';
    out += c;
  }
  return printable(out + quote);
}

}  // namespace troupe
