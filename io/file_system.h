// SPDX-License-Identifier: Apache-2.0
// The few operations on files that checkpoints need, as an interface, so that a test can fail or stop any of them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "troupe/error.h"

namespace troupe {

/// A file being written from its start. Dropped unclosed, it is closed.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  /// Errors: kResourceExhausted when the disk is full.
  virtual Status append(const void* data, size_t bytes) = 0;
  /// Returns once what was appended is on the disk.
  virtual Status sync() = 0;
  virtual Status close() = 0;
};

/// A file open for reading.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual uint64_t size() const = 0;
  /// Exactly `bytes` bytes from `offset`. Errors: kDataLoss when the file ends before.
  virtual Status read(uint64_t offset, void* out, size_t bytes) const = 0;
};

/// Errors of every operation name the path: kNotFound, kResourceExhausted (no space), kInternal with the system's word.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  /// Creates or empties `path`.
  virtual Result<std::unique_ptr<WritableFile>> create(const std::string& path) = 0;
  virtual Result<std::unique_ptr<ReadableFile>> open(const std::string& path) = 0;
  /// Replaces `to` if it is there, in one step.
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  virtual Status remove(const std::string& path) = 0;
  /// Returns once earlier renames and removals in `directory` are on the disk.
  virtual Status sync_directory(const std::string& directory) = 0;
  virtual Status make_directories(const std::string& directory) = 0;
  /// Names (not paths) of what `directory` holds, sorted.
  virtual Result<std::vector<std::string>> list(const std::string& directory) = 0;
};

/// The operating system's files.
std::shared_ptr<FileSystem> make_posix_file_system();

/// The error of a failed system call on `path`: `doing` as in "cannot open", `number` as in errno.
Error system_error(const char* doing, const std::string& path, int number);

}  // namespace troupe
