// SPDX-License-Identifier: Apache-2.0
// DataFolders: where graphs of somebody else's may touch files. A task of a cluster has one, see
// KernelRegistry::limit_files. Implemented in io/data_folders.cpp.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "troupe/error.h"

namespace troupe {

/// Immutable: any thread may use it.
class DataFolders {
 public:
  /// None: no file at all. Errors: kNotFound, kInvalidArgument for what is not a folder.
  static Result<std::shared_ptr<const DataFolders>> make(const std::vector<std::string>& folders);

  /// Whether `path`, which may not exist, lies in one of the folders: it and the folder that holds it, with "..", links
  /// and all. Error: kFailedPrecondition that names path and folders; also for a link that leads nowhere, since a file
  /// made there would be elsewhere.
  Status check(const std::string& path) const;

 private:
  explicit DataFolders(std::vector<std::string> folders) : folders_(std::move(folders)) {}
  bool holds(const std::string& path) const;
  const std::vector<std::string> folders_;  // without links
};

/// The same check for the one who opens a file on behalf of a graph: of a process with no such limit (null) it is fine.
inline Status may_touch(const std::shared_ptr<const DataFolders>& folders, const std::string& path) {
  return folders ? folders->check(path) : Status();
}

}  // namespace troupe
