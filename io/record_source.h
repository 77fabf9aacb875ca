// SPDX-License-Identifier: Apache-2.0
// RecordSource: a file as records with keys, in the manner of each of TensorFlow's readers.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "troupe/error.h"

namespace troupe {

struct Record {
  std::string key;  // the path, and where in the file the record is
  std::string value;
};

/// One open file. Its calls wait for the disk. Errors name the file.
class RecordSource {
 public:
  virtual ~RecordSource() = default;
  /// The next record, nothing at the end.
  virtual Result<std::optional<Record>> next() = 0;
};

/// Opens a file. May be called by any thread.
using OpenSource = std::function<Result<std::unique_ptr<RecordSource>>(const std::string& path)>;

/// Lines without their ends, but for the first `skip`; keys are "path:1" and so on, skipped lines counted.
/// Source: TextLineReader.
OpenSource line_source(int64_t skip);

struct FixedLength {
  int64_t header = 0;  // bytes before the first record
  int64_t record = 1;
  int64_t footer = 0;  // bytes at the end that belong to no record
  int64_t hop = 0;     // from the start of one record to that of the next; 0: as `record`
  bool gzip = false;
};
/// Records of one length; one that the file ends in is left out. Keys are "path:0" and so on.
/// Errors: kInvalidArgument for lengths that make no sense. Source: FixedLengthRecordReader.
Result<OpenSource> fixed_length_source(const FixedLength& lengths);

/// Records of TFRecord files, plain or gzip; keys are "path:offset". Source: TFRecordReader.
OpenSource tfrecord_source();

/// The whole file; the key is its path. Source: WholeFileReader.
OpenSource whole_file_source();

/// The name itself, as key and value; no file is opened. Source: IdentityReader.
OpenSource name_source();

}  // namespace troupe
