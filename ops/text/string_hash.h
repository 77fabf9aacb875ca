// SPDX-License-Identifier: Apache-2.0
// The fingerprint of strings that hashed ops share. Implemented in ops/text/string_hash.cpp.
#pragma once
#include <cstdint>
#include <string_view>

namespace troupe {

/// FarmHash's 64-bit fingerprint: the same everywhere and for ever.
uint64_t farm_fingerprint(std::string_view text);

}  // namespace troupe
