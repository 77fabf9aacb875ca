// SPDX-License-Identifier: Apache-2.0
// Whole files over the FileSystem interface.
#include "io/whole_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
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
  // A file is written beside and renamed, so that whoever reads it meanwhile, or writes it too, finds a whole one. What
  // is not a file of its own (a link, a FIFO) is written in place.
  std::error_code fault;
  const auto type = std::filesystem::symlink_status(path, fault).type();
  const bool beside = type == std::filesystem::file_type::not_found || type == std::filesystem::file_type::regular;
  static std::atomic<uint64_t> count{0};
  const std::string name = beside ? fmt::format("{}.{}-{}.partial", path, ::getpid(), count++) : path;
  const auto write = [&]() -> Status {
    TROUPE_ASSIGN(const auto file, files->create(name));
    TROUPE_RETURN_IF_ERROR(file->append(bytes.data(), bytes.size()));
    TROUPE_RETURN_IF_ERROR(file->close());
    return beside ? files->rename(name, path) : Status();
  };
  Status status = write();
  if (!status.ok() && beside) (void)files->remove(name).ok();  // the first error is the one to report
  return status;
}

Status append_file(const std::string& path, std::string_view bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0644);
  if (fd < 0) return system_error("cannot open", path, errno);
  let_wait(fd);
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
