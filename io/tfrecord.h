// SPDX-License-Identifier: Apache-2.0
// TFRecord files: each record is its length (8 bytes), the masked CRC-32C of that, the data, the masked
// CRC-32C of them.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "io/byte_reader.h"
#include "io/file_system.h"

namespace troupe {

/// A record as it stands in a file.
std::string encode_record(std::string_view data);

/// Writes records, gathered into pieces of 64 KiB. Close it to learn whether all of it was written. The first error of
/// writing stays: the file may end within a record.
class RecordWriter {
 public:
  static Result<RecordWriter> create(FileSystem& files, const std::string& path);
  Status write(std::string_view data);
  /// Hands what was gathered to the system.
  Status flush();
  Status close();

 private:
  explicit RecordWriter(std::unique_ptr<WritableFile> file) : file_(std::move(file)) {}
  std::unique_ptr<WritableFile> file_;
  std::string pending_;
  Status lost_;
};

/// Reads records one after another; a gzip file is recognised. Errors: kNotFound, kDataLoss naming file and offset.
class RecordReader {
 public:
  static Result<RecordReader> open(const std::string& path);
  /// The next record, nothing at the end. After an error the rest of the file cannot be trusted.
  Result<std::optional<std::string>> next();
  /// Where the next record begins, in bytes of the (uncompressed) file.
  uint64_t offset() const { return offset_; }

 private:
  explicit RecordReader(ByteReader bytes) : bytes_(std::move(bytes)) {}
  ByteReader bytes_;
  uint64_t offset_ = 0;
};

}  // namespace troupe
