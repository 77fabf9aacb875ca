// SPDX-License-Identifier: Apache-2.0
// Sorted string tables, LevelDB's files (https://github.com/google/leveldb/blob/main/doc/table_format.md), as
// TensorFlow's checkpoints use them: values by keys, in the order of the keys' bytes.
//
// A file: blocks of entries, a block about blocks (unused here), a block that says where the blocks are, and at the end
// where these two are. A block is followed by a byte for how it is packed and its masked CRC-32C.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/file_system.h"

namespace troupe {

/// Writes a table; the file is the caller's, and stays open.
class SortedTableWriter {
 public:
  explicit SortedTableWriter(WritableFile& file) : file_(file) {}
  /// Keys must come in order, each once (checked: kInternal). Errors: those of the file.
  Status add(std::string_view key, std::string_view value);
  /// Writes what is left, and the end.
  Status finish();

 private:
  /// Entries of one block, of which each says what its key has in common with the one before.
  struct BlockText {
    std::string bytes, last;
    std::vector<uint32_t> restarts;
    size_t since = 0;  // entries since the last whole key
    void add(std::string_view key, std::string_view value, size_t interval);
  };
  /// Writes a block; where it is, as the tables of blocks say it.
  Result<std::string> write(BlockText& block);
  Status write_entries();

  WritableFile& file_;
  uint64_t offset_ = 0;
  BlockText entries_, index_;
  bool any_ = false;
};

/// Reads a table. One thread at a time. Errors: kDataLoss naming file and offset for what is damaged; kUnimplemented
/// for blocks that are packed by Zstandard; those of the file.
class SortedTable {
 public:
  /// Whether the file ends as a table does.
  static bool is_one(const ReadableFile& file);
  static Result<SortedTable> open(std::unique_ptr<ReadableFile> file, std::string path);

  /// Calls `visit` with all entries in order until it fails. Memory: one block, and what `visit` keeps.
  Status for_each(const std::function<Status(std::string_view key, std::string_view value)>& visit);
  /// The value of a key, which is there until the next call; nothing where there is none. Going on from the key before
  /// is cheap when keys are asked for in order.
  Result<std::optional<std::string_view>> find(std::string_view key);

  const std::string& path() const { return path_; }
  uint64_t size() const { return file_->size(); }
  /// ReadableFile::in_place() of its file.
  bool in_place() const { return file_->in_place(); }

 private:
  struct Place {
    uint64_t offset = 0, size = 0;
  };
  /// A place within a block: the entry that is there.
  struct Cursor {
    size_t next = 0;
    std::string key;
    std::string_view value;
  };
  SortedTable(std::unique_ptr<ReadableFile> file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
  static std::optional<Place> take_place(std::string_view& bytes);
  Result<std::string> read_block(Place place) const;
  /// Moves on to the next entry of a block that lies at `place`; false at its end.
  Result<bool> step(std::string_view block, Place place, Cursor& cursor);
  Status load(size_t block);

  std::unique_ptr<ReadableFile> file_;
  std::string path_;
  std::vector<std::pair<std::string, Place>> index_;  // blocks by their last keys
  size_t loaded_ = SIZE_MAX;                          // the block whose bytes block_ has
  std::string block_;
  Cursor cursor_;
};

}  // namespace troupe
