// SPDX-License-Identifier: Apache-2.0
// Files by patterns of their names. Implemented in io/file_pattern.cpp.
#pragma once
#include <string>
#include <vector>

#include "troupe/error.h"

namespace troupe {

/// The paths of files that match, sorted; none is no error. The last part of the pattern may hold *, ? and [...].
/// Errors: a directory that holds one of these, what the system refuses.
Result<std::vector<std::string>> matching_files(const std::string& pattern);

}  // namespace troupe
