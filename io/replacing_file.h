// SPDX-License-Identifier: Apache-2.0
// Writes a file beside its place and moves it there when it is whole and on the disk, so that a crash leaves the one
// before.
#pragma once
#include <functional>
#include <string>

#include "io/file_system.h"

namespace troupe {

/// The folder of a path; "." where it names none.
std::string folder_of(const std::string& path);

/// Makes the folder, removes what an earlier crash left, writes by `write`, and replaces `path`. On an error nothing
/// has changed.
Status replace_file(FileSystem& files, const std::string& path, const std::function<Status(WritableFile&)>& write);

/// Gathers small pieces into larger ones on their way into a file.
class GatheringFile final : public WritableFile {
 public:
  explicit GatheringFile(WritableFile& file) : file_(file) {}
  Status append(const void* data, size_t bytes) override;
  /// Hands on what was gathered, too.
  Status sync() override;
  Status close() override;
  Status flush();

 private:
  WritableFile& file_;
  std::string pending_;
};

}  // namespace troupe
