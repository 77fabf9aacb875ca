// SPDX-License-Identifier: Apache-2.0
// Vocabularies, files of a word a line, and keys and values from the lines of a file. Implemented in
// ops/state/vocabulary_file.cpp.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "troupe/kernel.h"

namespace troupe {

/// How lines become entries. Immutable, so any thread may read.
class VocabularyFile {
 public:
  using Entries = std::pair<Tensor, Tensor>;  // keys and values, vectors of one length

  /// From the attributes of InitializeTableFromTextFileV2; it reads in init.data_folders alone.
  explicit VocabularyFile(const KernelInit& init);
  /// Reads the file, which may take as long as the file system likes. Errors: those of read_file(); kInvalidArgument
  /// that names the line whose text has too few columns or is not of the type.
  Result<Entries> read(const std::string& path, DType key_dtype, DType value_dtype) const;

 private:
  Status set(Tensor& column, int64_t index, int64_t row, std::string_view line) const;

  const int64_t columns_[2];  // of keys and of values
  const int64_t most_, offset_;
  const std::string delimiter_;
  const std::shared_ptr<const DataFolders> folders_;
};

/// The first `most` lines of a file (-1: all), without their ends. Waits for the file system. Errors: those of
/// read_file(); kInvalidArgument where there are fewer.
Result<std::vector<std::string>> read_vocabulary(const std::shared_ptr<const DataFolders>& folders,
                                                 const std::string& path, int64_t most);

}  // namespace troupe
