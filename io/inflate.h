// SPDX-License-Identifier: Apache-2.0
// Compressed bytes in memory. Implemented in io/inflate.cpp.
#pragma once
#include <string>
#include <string_view>

#include "troupe/error.h"

namespace troupe {

/// What zlib's (RFC 1950) or with `gzip` gzip's format (RFC 1952) packed, of the latter one after the other where there
/// are several; what else follows the end is not looked at.
/// Errors: kDataLoss for a broken stream or one that is cut off; kResourceExhausted for more than `most` bytes.
Result<std::string> inflated(std::string_view bytes, bool gzip, uint64_t most = uint64_t{1} << 31);

}  // namespace troupe
