// SPDX-License-Identifier: Apache-2.0
// TFRecord files: each record is its length (8 bytes), the masked CRC-32C of that, the data, the masked
// CRC-32C of them.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "io/byte_reader.h"
#include "io/file_system.h"

namespace troupe {

/// A record as it stands in a file.
std::string encode_record(std::string_view data);

/// What the bytes of a file are packed by. kSnappy: blocks, each behind its length in 4 bytes, the highest first; what
/// is written so is not smaller.
enum class RecordPacking : uint8_t { kNone, kGzip, kSnappy };

/// Writes records, gathered into pieces of 64 KiB. Close it to learn whether all of it was written. The first error of
/// writing stays: the file may end within a record.
class RecordWriter {
 public:
  static Result<RecordWriter> create(FileSystem& files, const std::string& path,
                                     RecordPacking packing = RecordPacking::kNone);
  Status write(std::string_view data);
  /// Hands what was gathered to the system; of a gzip file only what its stream has given.
  Status flush();
  /// Returns once all of it is on the disk.
  Status sync();
  Status close();

 private:
  class Gzip;
  RecordWriter(std::unique_ptr<WritableFile> file, RecordPacking packing);
  Status append(std::string_view bytes);
  /// Ends the stream of a gzip file.
  Status finish();
  std::unique_ptr<WritableFile> file_;
  RecordPacking packing_;
  std::shared_ptr<Gzip> gzip_;  // until its stream has ended
  std::string pending_;
  Status lost_;
};

/// Reads records one after another; a gzip file is recognised. Errors: kNotFound, kDataLoss naming file and offset.
class RecordReader {
 public:
  /// `snappy`: the file is packed so, which it does not tell.
  static Result<RecordReader> open(const std::string& path, bool snappy = false);
  /// The next record, nothing at the end. After an error the rest of the file cannot be trusted.
  Result<std::optional<std::string>> next();
  /// Where the next record begins, in bytes of the (uncompressed) file.
  uint64_t offset() const { return offset_; }

 private:
  RecordReader(ByteReader bytes, bool snappy) : bytes_(std::move(bytes)), snappy_(snappy) {}
  Result<size_t> read(char* out, size_t bytes);
  ByteReader bytes_;
  bool snappy_;
  std::string block_;  // unpacked, of which `at_` bytes were read
  size_t at_ = 0;
  uint64_t offset_ = 0;
};

}  // namespace troupe
