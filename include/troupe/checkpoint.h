// SPDX-License-Identifier: Apache-2.0
// Checkpoints: tensors by name in safetensors files, and the Checkpointer that saves them so that a crash at
// any moment leaves the last good one. Implemented in io/safetensors.cpp and io/checkpoint.cpp.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "troupe/export.h"
#include "troupe/tensor.h"

namespace TROUPE_API troupe {

class FileLock;
class FileSystem;

/// Tensors by name, in the order of their names.
using TensorMap = std::map<std::string, Tensor>;

/// What a safetensors file holds.
struct TensorFile {
  TensorMap tensors;
  std::map<std::string, std::string> metadata;  // all of __metadata__
  int64_t step = -1;                            // metadata["step"]; -1 where there is none
  bool checked = false;                         // whether the file carried a check sum (which then agreed)
};

/// Writes a safetensors file (https://github.com/huggingface/safetensors) in place: no temporary file, no
/// fsync; for that take a Checkpointer. __metadata__ holds "format" ("troupe"), "step" and "crc32c", which
/// covers the header and the data. complex128, for which the format has no name, is "C128". Any thread; tensors are
/// only read. Errors: kInvalidArgument naming the tensor (string and resource tensors have no place in the format;
/// undefined; a name that is not UTF-8 or is "__metadata__"), kNotFound (no such directory), kResourceExhausted (full
/// disk; what was written stays).
Status write_safetensors(const std::string& path, const TensorMap& tensors, int64_t step = -1);

/// Reads a safetensors file, ours or of another program. Everything is checked before it is used: sizes
/// against the file's, ranges for overlaps and gaps, shapes against ranges, the check sum where there is one.
/// Errors: kNotFound; kDataLoss naming file and offset of what is wrong; kUnimplemented for a dtype that is
/// not ours; kInvalidArgument for what is not a regular file; kResourceExhausted. Time grows with the number of
/// tensors as that of a sort.
Result<TensorFile> read_safetensors(const std::string& path);

/// Saves and loads the checkpoints of one directory: files "checkpoint-<step>.safetensors" and the file
/// "latest", which names the newest. Not thread-safe: one thread at a time.
///
/// A directory has one owner: open() takes the lock of its file "checkpoint.lock", which holds until the
/// Checkpointer and its copies are destroyed or the process ends, by a kill too. A child made by fork() holds it
/// as well. Others may read meanwhile: read_latest() and read_list() take no lock and change nothing.
///
/// save() writes a temporary file in the directory, fsyncs it, renames it, fsyncs the directory, moves
/// `latest` on in the same way, and only then deletes what is beyond keep_last_n. So a process killed, or a
/// disk that fills, at any byte leaves every earlier checkpoint and `latest` as they were.
class Checkpointer {
 public:
  /// What a user says about a checkpoint, by name.
  using Metadata = std::map<std::string, std::string>;
  /// What load_latest() found.
  struct Loaded {
    TensorMap tensors;
    int64_t step = 0;
    std::string path;
    std::vector<std::string> skipped;  // one line for each damaged checkpoint (or pointer) passed over: file and fault
    Metadata metadata;                 // all of __metadata__: what save() was given, and "format", "step", "crc32c"
  };
  /// One checkpoint of the directory.
  struct Entry {
    int64_t step = 0;
    std::string path;
  };

  /// Opens `directory`, makes it when there is none, and removes temporary files that a killed process left.
  /// `keep_last_n` below 1 keeps all. `files` is the system's files unless a test gives its own.
  /// Errors: kFailedPrecondition, naming the process and its host, when another Checkpointer of this or another process
  /// has the directory, and when its file system cannot lock files; else those of the system, naming the directory.
  static Result<Checkpointer> open(std::string directory, int64_t keep_last_n = 5,
                                   std::shared_ptr<FileSystem> files = nullptr);

  /// Writes a checkpoint and makes it the latest; an older one of the same step is replaced. Of more than
  /// keep_last_n, those of the lowest steps go; but those of steps beyond `step` (left by a run that was set
  /// back) go first. Temporary files that a killed process left are removed. Returns its path. `metadata` is kept with
  /// the tensors. Errors: those of write_safetensors; kInvalidArgument for a negative step, and for metadata named
  /// "format", "step" or "crc32c"; kResourceExhausted when the disk is full; kFailedPrecondition where the directory or
  /// its lock was moved, removed or made again since open(), as it may be another's now. On an error the temporary is
  /// removed.
  Result<std::string> save(const TensorMap& tensors, int64_t step, const Metadata& metadata = {});

  /// Loads what `latest` names; when that is damaged or missing, the one before it, and so on, with a warning
  /// in the log for each. Errors: kNotFound when the directory has no checkpoint; kDataLoss, listing each
  /// fault, when all of them are damaged; kInvalidArgument when `latest` or a checkpoint is not a file (a FIFO, say).
  Result<Loaded> load_latest() const { return read_latest(directory_, files_); }

  /// The checkpoints there are, in order of their steps.
  Result<std::vector<Entry>> list() const { return read_list(directory_, files_); }

  /// load_latest() of a directory that may be another's, who may save meanwhile: what it gives was the latest at some
  /// moment of the call. Any thread. Errors: those of load_latest().
  static Result<Loaded> read_latest(const std::string& directory, std::shared_ptr<FileSystem> files = nullptr);
  /// list() of a directory that may be another's. Any thread.
  static Result<std::vector<Entry>> read_list(const std::string& directory,
                                              std::shared_ptr<FileSystem> files = nullptr);

  const std::string& directory() const { return directory_; }

 private:
  Checkpointer(std::string directory, int64_t keep, std::shared_ptr<FileSystem> files, std::shared_ptr<FileLock> lock)
      : directory_(std::move(directory)), keep_(keep), files_(std::move(files)), lock_(std::move(lock)) {}
  Status check_lock() const;
  Status remove_temporaries();
  Status replace(const std::string& name, const std::vector<std::pair<const void*, size_t>>& pieces);

  std::string directory_;
  int64_t keep_;
  std::shared_ptr<FileSystem> files_;
  std::shared_ptr<FileLock> lock_;
};

}  // namespace troupe
