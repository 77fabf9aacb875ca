// SPDX-License-Identifier: Apache-2.0
// The few operations on files that checkpoints need, as an interface, so that a test can fail or stop any of them. None
// but take_turn() waits for another process: a FIFO that nobody reads or writes is an error.
#pragma once
#include <memory>
#include <string>
#include <utility>
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
  /// Whether its path still leads to it: no other file was put in its place.
  virtual bool in_place() const { return true; }
};

/// A lock that is held until this is destroyed or the process ends, however it ends.
class FileLock {
 public:
  virtual ~FileLock() = default;
  /// Whether its file is still the one at the path that was locked. Errors: kFailedPrecondition where it was moved,
  /// removed or made again, as with its folder, so that another process may have a lock there; else the system's.
  virtual Status check() const = 0;
};

/// Errors of every operation name the path: code_of_system_error(), with the system's word.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  /// Creates or empties `path`. A device, and a FIFO with a reader, is written to as it is.
  virtual Result<std::unique_ptr<WritableFile>> create(const std::string& path) = 0;
  /// Creates a file of a name that is free, `path`.N.temporary, for a save that renames it to `path` once it is synced.
  /// It is locked until it is closed, which tells it from one that a kill left. Gives the name, too.
  virtual Result<std::pair<std::string, std::unique_ptr<WritableFile>>> create_temporary(const std::string& path) = 0;
  /// Removes the temporary files of `path` that no process writes any more. Where files cannot be locked, all stay.
  virtual void remove_temporaries(const std::string& path) = 0;
  /// Opens a regular file. Errors: kInvalidArgument for a FIFO, a device, a directory or a socket.
  virtual Result<std::unique_ptr<ReadableFile>> open(const std::string& path) = 0;
  /// Takes the lock of the file `path`, which is made where there is none, stays, and says who has the lock. Errors:
  /// kFailedPrecondition where somebody has it, naming process and host; where the system cannot lock; else as open().
  virtual Result<std::unique_ptr<FileLock>> lock(const std::string& path) = 0;
  /// Replaces `to` if it is there, in one step. Errors: kInvalidArgument when `to` is there and is not a file.
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  /// The same for a name that is free; false, and nothing done, where `to` is there.
  virtual Result<bool> rename_new(const std::string& from, const std::string& to) = 0;
  /// Gives a file another name as well; false, and nothing done, where `to` is there. Errors: kUnimplemented where the
  /// file system cannot.
  virtual Result<bool> link_new(const std::string& from, const std::string& to) = 0;
  /// Whether what create_temporary() made, by whatever name it goes now, is still open. Where files cannot be locked:
  /// no.
  virtual bool in_use(const std::string& path) = 0;
  virtual Status remove(const std::string& path) = 0;
  /// Returns once earlier renames and removals in `directory` are on the disk.
  virtual Status sync_directory(const std::string& directory) = 0;
  virtual Status make_directories(const std::string& directory) = 0;
  /// Names (not paths) of what `directory` holds, sorted.
  virtual Result<std::vector<std::string>> list(const std::string& directory) = 0;
  /// What holds off others that ask for the same, in this process or another, until it is destroyed. Waits for one that
  /// has it, for a few seconds at most. Null then, and where directories cannot be locked: what is done in turn must be
  /// right for one process without.
  virtual std::unique_ptr<FileLock> take_turn(const std::string& /*directory*/) { return nullptr; }
};

/// The operating system's files.
std::shared_ptr<FileSystem> make_posix_file_system();

/// Opens `path` for reading; the descriptor is the caller's. Only regular files, without waiting, and with `streams`
/// FIFOs, whose first writer it waits for, and character devices. Errors: kInvalidArgument for what else it is.
Result<int> open_for_reading(const std::string& path, bool streams);

/// From here on reads and writes of a descriptor that was opened without waiting wait: of a FIFO, or a device.
void let_wait(int fd);

/// The error of a failed system call on `path`: `doing` as in "cannot open", `number` as in errno.
Error system_error(const char* doing, const std::string& path, int number);

/// What the machine calls itself; "localhost" where it tells nothing.
std::string host_name();

}  // namespace troupe
