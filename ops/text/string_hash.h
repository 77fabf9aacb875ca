// SPDX-License-Identifier: Apache-2.0
// The hashes of strings that several ops share. Implemented in ops/text/string_hash.cpp.
#pragma once
#include <cstdint>
#include <string_view>

namespace troupe {

/// FarmHash's 64-bit fingerprint: the same everywhere and for ever.
uint64_t farm_fingerprint(std::string_view text);
/// SipHash-2-4 by a key of two numbers: whoever does not know it cannot choose texts that fall together.
uint64_t sip_hash(std::string_view text, uint64_t key0, uint64_t key1);

}  // namespace troupe
