// SPDX-License-Identifier: Apache-2.0
// Reads, writes and extends a file at once.
#pragma once
#include <string>
#include <string_view>

#include "troupe/error.h"

namespace troupe {

/// Errors name the path: kNotFound, kResourceExhausted, kInvalidArgument for what is not a regular file, ...
Result<std::string> read_file(const std::string& path);
/// A file that could not be written wholly is removed.
Status write_file(const std::string& path, std::string_view bytes);
/// Adds to the end of a file, which is made where there is none. A FIFO that nobody reads is an error; where its reader
/// is slow, this waits.
Status append_file(const std::string& path, std::string_view bytes);

}  // namespace troupe
