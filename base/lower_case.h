// SPDX-License-Identifier: Apache-2.0
// Texts that may be written in any case.
#pragma once
#include <string>
#include <string_view>

namespace troupe {

/// `text` with its letters A to Z as small ones.
inline std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c += 'a' - 'A';
  return out;
}

}  // namespace troupe
