// SPDX-License-Identifier: Apache-2.0
// Lines, their columns, and what these say.
#include "ops/state/vocabulary_file.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "io/data_folders.h"
#include "io/whole_file.h"
#include "ops/text/string_numbers.h"

namespace troupe {
namespace {

constexpr int64_t kLineNumber = -1, kWholeLine = -2;

/// Without their ends, "\n" or "\r\n"; the last one needs none. Views of `bytes`.
std::vector<std::string_view> lines_of(std::string_view bytes) {
  std::vector<std::string_view> lines;
  while (!bytes.empty()) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    std::string_view line = bytes.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
  }
  return lines;
}

/// The lines after the first `offset`, the first `most` of those (-1: all).
Result<std::vector<std::string_view>> lines_between(std::string_view bytes, const std::string& path, int64_t offset,
                                                    int64_t most) {
  std::vector<std::string_view> lines = lines_of(bytes);
  lines.erase(lines.begin(), lines.begin() + std::min<int64_t>(offset, static_cast<int64_t>(lines.size())));
  if (most >= 0 && static_cast<int64_t>(lines.size()) < most)
    return invalid_argument("{} has {} lines, fewer than vocab_size {}", path, lines.size(), most);
  if (most >= 0) lines.resize(static_cast<size_t>(most));
  return lines;
}

}  // namespace

VocabularyFile::VocabularyFile(const KernelInit& init)
    : columns_{init.attr<int64_t>("key_index"), init.attr<int64_t>("value_index")},
      most_(init.attr<int64_t>("vocab_size")), offset_(init.attr<int64_t>("offset")),
      delimiter_(init.attr<std::string>("delimiter")), folders_(init.data_folders) {}

Result<VocabularyFile::Entries> VocabularyFile::read(const std::string& path, DType key_dtype,
                                                     DType value_dtype) const {
  if (offset_ < 0 || most_ < -1) return invalid_argument("offset {} and vocab_size {}", offset_, most_);
  TROUPE_RETURN_IF_ERROR(may_touch(folders_, path));
  TROUPE_ASSIGN(const std::string bytes, read_file(path));
  TROUPE_ASSIGN(const std::vector<std::string_view> lines, lines_between(bytes, path, offset_, most_));
  const Shape rows{static_cast<int64_t>(lines.size())};
  Entries out;
  for (const bool value : {false, true}) {
    Tensor& column = value ? out.second : out.first;
    TROUPE_ASSIGN(column, Tensor::make(value ? value_dtype : key_dtype, rows));
    for (size_t i = 0; i < lines.size(); ++i)
      if (Status status = set(column, columns_[value], static_cast<int64_t>(i), lines[i]); !status.ok()) {
        status.error().message = fmt::format("{}, line {}: {}", path, i + 1, status.error().message);
        return std::move(status.error());
      }
  }
  return out;
}

Status VocabularyFile::set(Tensor& column, int64_t index, int64_t row, std::string_view line) const {
  if (index == kLineNumber) return set_from_text(column, row, std::to_string(row));
  if (index == kWholeLine) return set_from_text(column, row, line);
  for (int64_t skipped = 0; skipped < index; ++skipped) {
    const size_t end = line.find(delimiter_);
    if (end == std::string_view::npos) return invalid_argument("there is no column {}", index);
    line.remove_prefix(end + delimiter_.size());
  }
  return set_from_text(column, row, line.substr(0, line.find(delimiter_)));
}

Result<std::vector<std::string>> read_vocabulary(const std::shared_ptr<const DataFolders>& folders,
                                                 const std::string& path, int64_t most) {
  TROUPE_RETURN_IF_ERROR(may_touch(folders, path));
  TROUPE_ASSIGN(const std::string bytes, read_file(path));
  TROUPE_ASSIGN(const std::vector<std::string_view> lines, lines_between(bytes, path, 0, most));
  return std::vector<std::string>(lines.begin(), lines.end());
}

}  // namespace troupe
