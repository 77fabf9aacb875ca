// SPDX-License-Identifier: Apache-2.0
// Checkpoints as a list of tensors and parts of tensors, whatever their format: what the readers of formats give and
// the writers take.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/data_folders.h"
#include "io/file_system.h"
#include "io/tensor_slice.h"
#include "troupe/tensor.h"

namespace troupe {

enum class CheckpointKind : uint8_t {
  kSafetensors,
  kBundle,  // TensorFlow's second format: PREFIX.index and PREFIX.data-00000-of-00001
  kSlices,  // TensorFlow's first format: one file
};

/// "a safetensors file", "a TensorFlow checkpoint (V2)", "a TensorFlow checkpoint (V1)".
const char* to_string(CheckpointKind kind);

/// A tensor that is there whole, or a part of one.
struct SavedPart {
  std::string name;
  int type = 0;  // TensorFlow's number; not all of them are ours
  Shape whole;   // of the tensor
  std::optional<TensorSlice> slice;
  std::optional<uint64_t> bytes;  // in the file, where the format tells
};

/// A file, or the files of a bundle, that has tensors. One thread at a time. Errors name the file and what is wrong.
class PartSource {
 public:
  virtual ~PartSource() = default;
  virtual CheckpointKind kind() const = 0;
  virtual const std::string& path() const = 0;
  /// How many files hold the data.
  virtual int shards() const { return 1; }
  const std::vector<SavedPart>& parts() const { return parts_; }
  /// Whether the file has as many bytes as parts()[index] needs, which it may only tell: before memory is asked for.
  virtual Status check(size_t index) = 0;
  /// The value of parts()[index], of which its bytes are checked. Errors: kUnimplemented for a type that is not ours.
  virtual Result<Tensor> read(size_t index, const std::shared_ptr<Allocator>& allocator) = 0;

 protected:
  std::vector<SavedPart> parts_;
};

/// The files that a reader or a writer may touch.
struct FileAccess {
  std::shared_ptr<FileSystem> files = make_posix_file_system();
  std::shared_ptr<const DataFolders> folders;  // null: all

  Result<std::unique_ptr<ReadableFile>> open(const std::string& path) const {
    TROUPE_RETURN_IF_ERROR(may_touch(folders, path));
    return files->open(path);
  }
};

/// A tensor, or a part of one, on its way into a checkpoint.
struct TensorToSave {
  std::string name;
  DType dtype = DType::kInvalid;
  Shape whole;  // of the tensor
  std::optional<TensorSlice> slice;
  /// Gives the value when its turn has come; may be called more than once.
  std::function<Result<Tensor>()> value;

  const Shape& shape() const { return slice ? slice->part : whole; }
};

/// The DType of TensorFlow's number, quantised integers being those that they are made of. Errors: kUnimplemented with
/// the type's name.
Result<DType> dtype_of_number(int number);
/// TensorFlow's name of a number: ours where we have it, else "qint8", "int4", "type 77".
std::string name_of_type(int number);

/// The value of a tensor to save, checked: kInternal where it is not what was announced.
Result<Tensor> value_of(const TensorToSave& tensor);

}  // namespace troupe
