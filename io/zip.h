// SPDX-License-Identifier: Apache-2.0
// ZIP archives in memory, as far as .npz files need them: stored and deflated members, ZIP64. Source: PKWARE's APPNOTE.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "troupe/error.h"

namespace troupe {

/// Names and contents of members, in the archive's order.
using ZipMembers = std::vector<std::pair<std::string, std::string>>;

/// Errors (naming `path`): kDataLoss for anything unsound, kUnimplemented for encryption and other compressions.
/// Never asks for more memory than the archive's length can account for.
Result<ZipMembers> read_zip(std::string_view archive, const std::string& path);

/// The archive of `members`, deflated when `compress`. The same members give the same bytes.
Result<std::string> write_zip(const ZipMembers& members, bool compress);

}  // namespace troupe
