// SPDX-License-Identifier: Apache-2.0
// FileSystem over POSIX calls.
#include "io/file_system.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>

#include "base/system_code.h"

namespace troupe {

Error system_error(const char* doing, const std::string& path, int number) {
  return make_error(code_of_system_error(number), "{} '{}': {}", doing, path, std::generic_category().message(number));
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
  do fd = ::open(path.c_str(), flags | O_CLOEXEC | O_NOCTTY, 0644);
  while (fd < 0 && errno == EINTR);
  return fd;
}

/// Takes the lock of an open file if it is free; else -1 with errno, EWOULDBLOCK where another has it.
int lock_now(int fd) {
  int result;
  do result = ::flock(fd, LOCK_EX | LOCK_NB);
  while (result != 0 && errno == EINTR);
  return result;
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "something else";
}

Error not_regular(const std::string& path, mode_t mode) {
  return invalid_argument("'{}' is not a regular file but {}", path, kind_of(mode));
}

constexpr std::string_view kTemporary = ".temporary";

/// Whether `name` is that of a temporary file of `stem`: digits between the two.
bool is_temporary(std::string_view name, std::string_view stem) {
  if (name.size() <= stem.size() + 1 + kTemporary.size() || !name.starts_with(stem) || name[stem.size()] != '.' ||
      !name.ends_with(kTemporary))
    return false;
  const std::string_view number = name.substr(stem.size() + 1, name.size() - stem.size() - 1 - kTemporary.size());
  return std::ranges::all_of(number, [](char c) { return c >= '0' && c <= '9'; });
}

class PosixLock final : public FileLock {
 public:
  PosixLock(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  Status check() const override {
    struct stat own, there;
    if (::fstat(fd_.get(), &own) != 0) return system_error("cannot stat", path_, errno);
    const bool found = ::stat(path_.c_str(), &there) == 0;
    if (!found && errno != ENOENT && errno != ENOTDIR) return system_error("cannot stat", path_, errno);
    if (found && own.st_ino == there.st_ino && own.st_dev == there.st_dev) return {};
    return make_error(Code::kFailedPrecondition, "'{}' was moved or removed{} since it was locked", path_,
                      found ? " and made again" : "");
  }

 private:
  Descriptor fd_;
  std::string path_;
};

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
  bool in_place() const override {
    struct stat own, there;
    return ::fstat(fd_.get(), &own) == 0 && ::stat(path_.c_str(), &there) == 0 && own.st_ino == there.st_ino &&
           own.st_dev == there.st_dev;
  }

 private:
  Descriptor fd_;
  std::string path_;
  uint64_t size_;
};

class PosixFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<WritableFile>> create(const std::string& path) override {
    const int fd = open_retrying(path, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK);
    if (fd < 0 && errno == ENXIO)
      return make_error(Code::kFailedPrecondition, "cannot write '{}': a FIFO or a socket that nobody reads", path);
    if (fd < 0) return system_error("cannot create", path, errno);
    let_wait(fd);
    return std::unique_ptr<WritableFile>(new PosixWritable(fd, path));
  }

  Result<std::pair<std::string, std::unique_ptr<WritableFile>>> create_temporary(const std::string& path) override {
    constexpr int kMost = 10'000;
    for (int n = 0; n < kMost; ++n) {
      std::string name = fmt::format("{}.{}{}", path, n, kTemporary);
      Descriptor fd(open_retrying(name, O_RDWR | O_CREAT | O_EXCL));
      if (fd.get() < 0 && errno == EEXIST) continue;
      if (fd.get() < 0) return system_error("cannot create", name, errno);
      // Another save that is clearing up may have locked the file first, and removes it; then the next name will do.
      struct stat info;
      if (lock_now(fd.get()) != 0 && errno == EWOULDBLOCK) continue;
      if (::fstat(fd.get(), &info) != 0) return system_error("cannot stat", name, errno);
      if (info.st_nlink == 0) continue;
      auto file = std::make_unique<PosixWritable>(fd.release(), name);
      return std::pair<std::string, std::unique_ptr<WritableFile>>(std::move(name), std::move(file));
    }
    return make_error(Code::kResourceExhausted, "'{}' has {} temporary files in use", path, kMost);
  }

  void remove_temporaries(const std::string& path) override {
    const std::filesystem::path whole(path);
    const std::string stem = whole.filename().string();
    std::string directory = whole.parent_path().string();
    if (directory.empty()) directory = ".";
    const auto names = list(directory);
    if (!names.ok()) return;
    for (const std::string& name : *names) {
      if (!is_temporary(name, stem)) continue;
      const std::string there = directory + "/" + name;
      const Descriptor fd(open_retrying(there, O_RDWR | O_NONBLOCK | O_NOFOLLOW));
      struct stat info;
      if (fd.get() < 0 || ::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
      // Its save may have ended meanwhile, and another taken the name.
      struct stat now;
      if (lock_now(fd.get()) == 0 && ::lstat(there.c_str(), &now) == 0 && now.st_ino == info.st_ino &&
          now.st_dev == info.st_dev)
        (void)::unlink(there.c_str());
    }
  }

  Result<std::unique_ptr<ReadableFile>> open(const std::string& path) override {
    TROUPE_ASSIGN(const int opened, open_for_reading(path, false));
    Descriptor fd(opened);
    struct stat info;
    if (::fstat(fd.get(), &info) != 0) return system_error("cannot stat", path, errno);
    return std::unique_ptr<ReadableFile>(new PosixReadable(fd.release(), path, static_cast<uint64_t>(info.st_size)));
  }

  Result<std::unique_ptr<FileLock>> lock(const std::string& path) override {
    Descriptor fd(open_retrying(path, O_RDWR | O_CREAT | O_NONBLOCK));
    if (fd.get() < 0) return system_error("cannot open", path, errno);
    struct stat info;
    if (::fstat(fd.get(), &info) != 0) return system_error("cannot stat", path, errno);
    if (!S_ISREG(info.st_mode)) return not_regular(path, info.st_mode);
    if (lock_now(fd.get()) != 0) {
      const int fault = errno;
      if (fault != EWOULDBLOCK)
        return make_error(Code::kFailedPrecondition, "cannot lock '{}': {}; the file system must have locks", path,
                          std::generic_category().message(fault));
      char owner[300] = {};
      ssize_t n = ::pread(fd.get(), owner, sizeof owner - 1, 0);
      while (n > 0 && owner[n - 1] == '\n') --n;
      return make_error(Code::kFailedPrecondition, "'{}' is locked by {}", path,
                        n > 0 ? std::string_view(owner, static_cast<size_t>(n)) : "another process");
    }
    // For others to read; the lock holds without it.
    const std::string me = fmt::format("process {} on {}\n", ::getpid(), host_name());
    if (::ftruncate(fd.get(), 0) == 0) (void)!::pwrite(fd.get(), me.data(), me.size(), 0);
    return std::unique_ptr<FileLock>(new PosixLock(fd.release(), path));
  }

  Status rename(const std::string& from, const std::string& to) override {
    struct stat info;
    // A link is replaced, but not one to what is not a file, such as /dev/stdout; one that leads nowhere is.
    if (::lstat(to.c_str(), &info) == 0 && !S_ISREG(info.st_mode) &&
        !(S_ISLNK(info.st_mode) && (::stat(to.c_str(), &info) != 0 || S_ISREG(info.st_mode))))
      return not_regular(to, info.st_mode);
    if (::rename(from.c_str(), to.c_str()) != 0) return system_error("cannot rename to", to, errno);
    return {};
  }

  Result<bool> rename_new(const std::string& from, const std::string& to) override {
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return true;
    if (errno == EEXIST) return false;
    if (errno != EINVAL && errno != ENOSYS) return system_error("cannot rename to", to, errno);
    // A file system that cannot tell: the next best.
    struct stat info;
    if (::lstat(to.c_str(), &info) == 0) return false;
    TROUPE_RETURN_IF_ERROR(rename(from, to));
    return true;
  }

  Result<bool> link_new(const std::string& from, const std::string& to) override {
    if (::link(from.c_str(), to.c_str()) == 0) return true;
    if (errno == EEXIST) return false;
    if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS || errno == EXDEV || errno == EMLINK)
      return make_error(Code::kUnimplemented, "cannot give '{}' the name '{}' as well: {}", from, to,
                        std::generic_category().message(errno));
    return system_error("cannot give another name to", from, errno);
  }

  bool in_use(const std::string& path) override {
    const Descriptor fd(open_retrying(path, O_RDONLY | O_NONBLOCK));
    return fd.get() >= 0 && lock_now(fd.get()) != 0 && errno == EWOULDBLOCK;
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

  std::unique_ptr<FileLock> take_turn(const std::string& directory) override {
    constexpr std::chrono::seconds kMost(10);
    constexpr std::chrono::milliseconds kPause(1);
    const auto end = std::chrono::steady_clock::now() + kMost;
    Descriptor fd(open_retrying(directory, O_RDONLY | O_DIRECTORY));
    if (fd.get() < 0) return nullptr;
    while (lock_now(fd.get()) != 0) {
      if (errno != EWOULDBLOCK || std::chrono::steady_clock::now() >= end) return nullptr;
      std::this_thread::sleep_for(kPause);
    }
    return std::make_unique<PosixLock>(fd.release(), directory);
  }
};

}  // namespace

void let_wait(int fd) {
  if (const int flags = ::fcntl(fd, F_GETFL); flags >= 0) (void)::fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 && *name ? name : "localhost";
}

Result<int> open_for_reading(const std::string& path, bool streams) {
  Descriptor fd(open_retrying(path, O_RDONLY | O_NONBLOCK));
  struct stat info;
  if (fd.get() < 0) {
    const int fault = errno;
    if (fault == ENXIO && ::stat(path.c_str(), &info) == 0) return not_regular(path, info.st_mode);
    return system_error("cannot open", path, fault);
  }
  if (::fstat(fd.get(), &info) != 0) return system_error("cannot stat", path, errno);
  if (!S_ISREG(info.st_mode) && !(streams && (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode))))
    return not_regular(path, info.st_mode);
  if (streams && !S_ISREG(info.st_mode)) {
    // A FIFO that nobody has written to yet looks as if it had ended.
    pollfd writer = {.fd = fd.get(), .events = POLLIN, .revents = 0};
    while (S_ISFIFO(info.st_mode) && ::poll(&writer, 1, -1) < 0 && errno == EINTR) {
    }
    let_wait(fd.get());
  }
  return fd.release();
}

std::shared_ptr<FileSystem> make_posix_file_system() { return std::make_shared<PosixFileSystem>(); }

}  // namespace troupe
