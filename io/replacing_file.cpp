// SPDX-License-Identifier: Apache-2.0
#include "io/replacing_file.h"

#include <filesystem>

namespace troupe {

std::string folder_of(const std::string& path) {
  const std::string directory = std::filesystem::path(path).parent_path().string();
  return directory.empty() ? "." : directory;
}

Status replace_file(FileSystem& files, const std::string& path, const std::function<Status(WritableFile&)>& write) {
  const std::string folder = folder_of(path);
  TROUPE_RETURN_IF_ERROR(files.make_directories(folder));
  files.remove_temporaries(path);
  TROUPE_ASSIGN(auto temporary, files.create_temporary(path));
  auto& [name, file] = temporary;
  Status status = write(*file);
  if (status.ok()) status = file->sync();
  if (status.ok()) status = files.rename(name, path);
  if (!status.ok()) {
    (void)files.remove(name).ok();  // the first error is the one to report
    return status;
  }
  TROUPE_RETURN_IF_ERROR(file->close());
  return files.sync_directory(folder);
}

Status GatheringFile::append(const void* data, size_t bytes) {
  constexpr size_t kPiece = 256 << 10;
  if (pending_.size() + bytes > kPiece) TROUPE_RETURN_IF_ERROR(flush());
  if (bytes > kPiece) return file_.append(data, bytes);
  pending_.append(static_cast<const char*>(data), bytes);
  return {};
}

Status GatheringFile::flush() {
  if (pending_.empty()) return {};
  const Status status = file_.append(pending_.data(), pending_.size());
  pending_.clear();
  return status;
}

Status GatheringFile::sync() {
  TROUPE_RETURN_IF_ERROR(flush());
  return file_.sync();
}

Status GatheringFile::close() {
  TROUPE_RETURN_IF_ERROR(flush());
  return file_.close();
}

}  // namespace troupe
