// SPDX-License-Identifier: Apache-2.0
// Text from graphs, files and users on its way into messages, logs and terminals. Names may hold any byte: one that
// ends a string early, moves the cursor or begins a line must not reach the reader as it is.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace troupe {

/// How many bytes the UTF-8 character has that `text` begins with, by the table of well-formed sequences of the Unicode
/// Standard (3-7); 0 for none.
size_t utf8_character(std::string_view text);

/// `text` with control characters as \n, \t, \r or \xNN, a byte each, and bytes that are not UTF-8 as \xNN. The rest
/// stays, so what is printable already is not changed.
std::string printable(std::string_view text);

/// The same between two `quote`s, with \ before each quote and backslash of `text`.
std::string in_quotes(std::string_view text, char quote = '\'');

}  // namespace troupe
