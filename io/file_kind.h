// SPDX-License-Identifier: Apache-2.0
// What a file is that was taken for something else.
#pragma once
#include <string>

#include "io/file_system.h"

namespace troupe {

/// "a PNG picture", "a ZIP archive (.npz, .keras or PyTorch's)": from the first bytes; "something unknown" else.
std::string kind_of_file(const ReadableFile& file);

}  // namespace troupe
