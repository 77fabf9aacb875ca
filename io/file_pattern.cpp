// SPDX-License-Identifier: Apache-2.0
// Names of a directory against a pattern.
#include "io/file_pattern.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>

#include "io/file_system.h"

namespace troupe {

Result<std::vector<std::string>> matching_files(const std::string& pattern) {
  const std::filesystem::path path(pattern);
  const std::string directory = path.parent_path().string(), name = path.filename().string();
  if (directory.find_first_of("*?[") != std::string::npos)
    return make_error(Code::kUnimplemented, "'{}': only the last part of a path may be a pattern", pattern);
  std::vector<std::string> found;
  const auto names = make_posix_file_system()->list(directory.empty() ? "." : directory);
  if (!names.ok() && names.error().code == Code::kNotFound) return found;
  if (!names.ok()) return names.error();
  for (const std::string& one : *names)
    if (::fnmatch(name.c_str(), one.c_str(), 0) == 0)
      found.push_back(directory.empty() ? one : (path.parent_path() / one).string());
  std::ranges::sort(found);
  return found;
}

}  // namespace troupe
