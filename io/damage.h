// SPDX-License-Identifier: Apache-2.0
// The error of a file that is not what its format says.
#pragma once
#include <spdlog/fmt/fmt.h>
#include <string>
#include <utility>

#include "troupe/error.h"

namespace troupe {

/// "'PATH' is damaged at offset 12: ..."
template <class... Args>
Error damaged_file(const std::string& path, uint64_t offset, fmt::format_string<Args...> format, Args&&... args) {
  return make_error(Code::kDataLoss, "'{}' is damaged at offset {}: {}", path, offset,
                    fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace troupe
