// SPDX-License-Identifier: Apache-2.0
// FileSystem over POSIX calls.
#include "io/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

namespace troupe {

Error system_error(const char* doing, const std::string& path, int number) {
  Code code = Code::kInternal;
  if (number == ENOENT || number == ENOTDIR) code = Code::kNotFound;
  if (number == ENOSPC || number == EDQUOT || number == EFBIG) code = Code::kResourceExhausted;
  if (number == EACCES || number == EPERM || number == EROFS) code = Code::kFailedPrecondition;
  if (number == EISDIR || number == ENAMETOOLONG) code = Code::kInvalidArgument;
  return make_error(code, "{} '{}': {}", doing, path, std::generic_category().message(number));
}

namespace {

/// Owns a descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

int open_retrying(const std::string& path, int flags) {
  int fd;
  do fd = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
  while (fd < 0 && errno == EINTR);
  return fd;
}

class PosixWritable final : public WritableFile {
 public:
  PosixWritable(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  Status append(const void* data, size_t bytes) override {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t n = ::write(fd_.get(), at, bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return system_error("cannot write", path_, errno);
      at += n;
      bytes -= static_cast<size_t>(n);
    }
    return {};
  }
  Status sync() override {
    if (::fsync(fd_.get()) != 0) return system_error("cannot sync", path_, errno);
    return {};
  }
  Status close() override {
    if (::close(fd_.release()) != 0) return system_error("cannot close", path_, errno);
    return {};
  }

 private:
  Descriptor fd_;
  std::string path_;
};

class PosixReadable final : public ReadableFile {
 public:
  PosixReadable(int fd, std::string path, uint64_t size) : fd_(fd), path_(std::move(path)), size_(size) {}
  uint64_t size() const override { return size_; }

  Status read(uint64_t offset, void* out, size_t bytes) const override {
    char* at = static_cast<char*>(out);
    while (bytes > 0) {
      const ssize_t n = ::pread(fd_.get(), at, bytes, static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return system_error("cannot read", path_, errno);
      if (n == 0)
        return make_error(Code::kDataLoss, "'{}' ends at offset {}, {} bytes too early", path_, offset, bytes);
      at += n;
      offset += static_cast<uint64_t>(n);
      bytes -= static_cast<size_t>(n);
    }
    return {};
  }

 private:
  Descriptor fd_;
  std::string path_;
  uint64_t size_;
};

class PosixFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<WritableFile>> create(const std::string& path) override {
    const int fd = open_retrying(path, O_WRONLY | O_CREAT | O_TRUNC);
    if (fd < 0) return system_error("cannot create", path, errno);
    return std::unique_ptr<WritableFile>(new PosixWritable(fd, path));
  }

  Result<std::unique_ptr<ReadableFile>> open(const std::string& path) override {
    Descriptor fd(open_retrying(path, O_RDONLY));
    if (fd.get() < 0) return system_error("cannot open", path, errno);
    struct stat info;
    if (::fstat(fd.get(), &info) != 0) return system_error("cannot stat", path, errno);
    if (!S_ISREG(info.st_mode)) return invalid_argument("'{}' is not a regular file", path);
    return std::unique_ptr<ReadableFile>(new PosixReadable(fd.release(), path, static_cast<uint64_t>(info.st_size)));
  }

  Status rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) return system_error("cannot rename to", to, errno);
    return {};
  }

  Status remove(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) return system_error("cannot remove", path, errno);
    return {};
  }

  Status sync_directory(const std::string& directory) override {
    const Descriptor fd(open_retrying(directory, O_RDONLY | O_DIRECTORY));
    if (fd.get() < 0) return system_error("cannot open", directory, errno);
    // Some file systems have no sync of directories; they say EINVAL.
    if (::fsync(fd.get()) != 0 && errno != EINVAL) return system_error("cannot sync", directory, errno);
    return {};
  }

  Status make_directories(const std::string& directory) override {
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    if (error) return system_error("cannot make directory", directory, error.value());
    return {};
  }

  Result<std::vector<std::string>> list(const std::string& directory) override {
    std::error_code error;
    std::vector<std::string> names;
    for (std::filesystem::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
      names.push_back(at->path().filename().string());
    if (error) return system_error("cannot list", directory, error.value());
    std::ranges::sort(names);
    return names;
  }
};

}  // namespace

std::shared_ptr<FileSystem> make_posix_file_system() { return std::make_shared<PosixFileSystem>(); }

}  // namespace troupe
