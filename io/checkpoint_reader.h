// SPDX-License-Identifier: Apache-2.0
// Reads checkpoints of all formats, told apart by what is there: TensorFlow's (V2 and V1) and safetensors.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/saved_parts.h"

namespace troupe {

/// A checkpoint: a bundle, a file, or several files. One thread at a time.
class CheckpointReader {
 public:
  /// A tensor without its values.
  struct Entry {
    std::string_view name;
    int type = 0;  // TensorFlow's number
    Shape shape;
    std::optional<uint64_t> bytes;  // in the files
    size_t parts = 0;
  };

  /// `path` is the prefix of a bundle, the path of its index, a file, or with `pattern` what several files match, which
  /// then are one checkpoint. Errors: kNotFound; kInvalidArgument for a file that is not a checkpoint, saying what it
  /// is; kDataLoss for damaged ones, and where files disagree.
  static Result<CheckpointReader> open(const FileAccess& access, const std::string& path, bool pattern = false);

  /// In order of names.
  std::vector<Entry> entries() const;
  CheckpointKind kind() const { return sources_.front()->kind(); }
  /// How many files hold the data.
  int shards() const;
  const std::string& path() const { return path_; }

  /// The dtype and shape of a tensor. Errors: kNotFound; kUnimplemented for a type that is not ours.
  Result<std::pair<DType, Shape>> find(const std::string& name) const;
  /// Those of `names` that are not there.
  std::vector<std::string> missing(const std::vector<std::string>& names) const;
  /// A tensor, or a slice of it, put together from its parts. Errors: as find(); kInvalidArgument for a slice of
  /// another shape; kDataLoss for what is damaged, parts that overlap, and where not all elements are there.
  Result<Tensor> read(const std::string& name, const std::optional<TensorSlice>& slice,
                      const std::shared_ptr<Allocator>& allocator = system_allocator()) const;

 private:
  struct Place {
    size_t source = 0, part = 0;
  };
  explicit CheckpointReader(std::string path) : path_(std::move(path)) {}
  const SavedPart& part(const Place& place) const { return sources_[place.source]->parts()[place.part]; }
  std::span<const Place> parts_of(std::string_view name) const;
  /// Sorts the parts; what several files have of a tensor must agree.
  Status sort_parts();

  std::string path_;
  std::vector<std::unique_ptr<PartSource>> sources_;
  std::vector<Place> places_;  // by name
};

/// Opens one file by what it holds. Errors: as CheckpointReader::open().
Result<std::unique_ptr<PartSource>> open_checkpoint_file(const FileAccess& access, const std::string& path);

/// The checkpoint that a folder stands for, as open() takes it with `pattern`: the latest by its text file "checkpoint"
/// or of a Checkpointer, of a SavedModel its variables, else the only one there. A latest that is named by an absolute
/// path, and is not there, is looked for in the folder, which may have been moved. Errors: kNotFound where there is
/// none, kInvalidArgument with the names where there are several, kDataLoss for a text that says nothing.
Result<std::string> checkpoint_of_folder(const std::string& folder);

/// Whether checkpoints of a kind hold a dtype.
bool can_hold(CheckpointKind kind, DType dtype);

/// Writes tensors as a checkpoint of a kind in the place of `path`. Errors: those of the kind's writer. On an error
/// nothing has changed.
Status write_checkpoint(const FileAccess& access, CheckpointKind kind, const std::string& path,
                        std::span<const TensorToSave> tensors);

}  // namespace troupe
