// SPDX-License-Identifier: Apache-2.0
#include "io/data_folders.h"

#include <algorithm>
#include <filesystem>

#include "base/join.h"
#include "base/printable.h"
#include "io/file_system.h"

namespace troupe {

namespace fs = std::filesystem;

Result<std::shared_ptr<const DataFolders>> DataFolders::make(const std::vector<std::string>& folders) {
  std::vector<std::string> found;
  for (const std::string& folder : folders) {
    std::error_code error;
    const fs::path whole = fs::canonical(folder, error);
    if (error) return system_error("cannot take as a data folder", folder, error.value());
    if (!fs::is_directory(whole, error))
      return invalid_argument("the data folder {} is not a folder", in_quotes(folder));
    found.push_back(whole.string());
  }
  return std::shared_ptr<const DataFolders>(new DataFolders(std::move(found)));
}

bool DataFolders::holds(const std::string& path) const {
  return std::ranges::any_of(folders_, [&](const std::string& folder) {
    return folder == "/" || path == folder || path.starts_with(folder + "/");
  });
}

Status DataFolders::check(const std::string& path) const {
  const auto outside = [&] {
    std::vector<std::string> quoted;
    for (const std::string& folder : folders_) quoted.push_back(in_quotes(folder));
    return make_error(Code::kFailedPrecondition, "the path {} is not in a data folder of this task (--data): {}",
                      in_quotes(path), quoted.empty() ? "it has none" : join(quoted, ", "));
  };
  // The system ends a path at its first 0.
  if (path.empty() || path.find('\0') != std::string::npos) return outside();
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  const fs::path whole = error ? fs::path() : fs::weakly_canonical(absolute, error);
  if (error) return system_error("cannot tell where it lies:", path, error.value());
  if (!holds(whole.string())) return outside();
  // A file is made beside its place first: where its last part is a link, the place is that of the link.
  const fs::path beside = fs::weakly_canonical(absolute.parent_path(), error);
  if (error || !holds(beside.string())) return outside();
  // What is left of links leads nowhere.
  for (fs::path at = whole; at.has_relative_path(); at = at.parent_path())
    if (fs::is_symlink(fs::symlink_status(at, error))) return outside();
  return {};
}

}  // namespace troupe
