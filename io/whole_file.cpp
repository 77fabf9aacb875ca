// SPDX-License-Identifier: Apache-2.0
// Whole files over the FileSystem interface.
#include "io/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
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

Status append_file(const std::string& path, std::string_view bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0644);
  if (fd < 0) return system_error("cannot open", path, errno);
  int fault = 0;
  while (!bytes.empty() && fault == 0) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n >= 0) bytes.remove_prefix(static_cast<size_t>(n));
    else if (errno != EINTR) fault = errno;
  }
  if (::close(fd) != 0 && fault == 0) fault = errno;
  return fault ? Status(system_error("cannot write", path, fault)) : Status();
}

}  // namespace troupe
