// SPDX-License-Identifier: Apache-2.0
// Reads and writes a whole file at once.
#pragma once
#include <string>
#include <string_view>

#include "troupe/error.h"

namespace troupe {

/// Errors name the path: kNotFound, kResourceExhausted, ...
Result<std::string> read_file(const std::string& path);
/// A file that could not be written wholly is removed.
Status write_file(const std::string& path, std::string_view bytes);

}  // namespace troupe
