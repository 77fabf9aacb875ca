// SPDX-License-Identifier: Apache-2.0
// Files of examples as datasets of rows for feeds: comma-separated text and TFRecord files of tf.train.Example. Which
// kind a file is of tell its first bytes. Implemented in cli/feed_files.cpp.
#pragma once
#include <string>
#include <vector>

#include "cli/feed_values.h"
#include "troupe/dataset.h"

namespace troupe {

enum class FeedFileKind : uint8_t { kNpy, kNpz, kIdx, kRecords, kText, kEmpty };

/// Errors: those of opening it; kInvalidArgument for another kind of file, which is named.
Result<FeedFileKind> kind_of_feed_file(const std::string& path);

/// A feed and what of each row of the files it is.
struct FeedColumns {
  FeedSlot slot;
  /// Of text: names from the first line or numbers from 0, "a,b", "3..5", "a..c"; empty: all. Of records: the name of a
  /// feature; empty: the record itself.
  std::string columns;
};

/// Rows of text files, plain or gzip: a line each, fields between commas, else tabs, else semicolons, by RFC 4180
/// without line ends in quotes. The first line of each file is names where columns are chosen by names, or where it
/// has no number in any column that must have numbers. Empty lines are passed over. Errors name file, line and column.
Result<Dataset> text_rows(std::vector<std::string> files, std::vector<FeedColumns> feeds);

/// Rows of TFRecord files, plain or gzip. A feature of bytes that is fed for numbers holds their raw elements or, where
/// it has one byte for each, uint8. Errors name file, offset and feature.
Result<Dataset> record_rows(std::vector<std::string> files, std::vector<FeedColumns> feeds);

}  // namespace troupe
