// SPDX-License-Identifier: Apache-2.0
// Whole files over the FileSystem interface.
#include "io/whole_file.h"

#include <exception>
#include <filesystem>

#include "io/file_system.h"

namespace troupe {

Result<std::string> read_file(const std::string& path) {
  TROUPE_ASSIGN(const auto file, make_posix_file_system()->open(path));
  std::string bytes;
  try {
    bytes.resize(file->size());
  } catch (const std::exception&) {
    return make_error(Code::kResourceExhausted, "no memory for the {} bytes of '{}'", file->size(), path);
  }
  TROUPE_RETURN_IF_ERROR(file->read(0, bytes.data(), bytes.size()));
  return bytes;
}

Status write_file(const std::string& path, std::string_view bytes) {
  const auto files = make_posix_file_system();
  TROUPE_ASSIGN(const auto file, files->create(path));
  Status status = file->append(bytes.data(), bytes.size());
  if (status.ok()) status = file->close();
  std::error_code fault;
  if (!status.ok() && std::filesystem::is_regular_file(std::filesystem::symlink_status(path, fault)))
    (void)files->remove(path).ok();  // the first error is the one to report
  return status;
}

}  // namespace troupe
