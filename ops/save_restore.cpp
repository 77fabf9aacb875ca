// SPDX-License-Identifier: Apache-2.0
// SaveV2 and RestoreV2: tensors to and from one safetensors file, whose path is the `prefix`. MergeV2Checkpoints makes
// one such file of several.
#include <filesystem>

#include "io/safetensors.h"
#include "ops/all.h"
#include "troupe/blocking_kernel.h"
#include "troupe/checkpoint.h"

namespace troupe {
namespace {

/// What the first three inputs ask for.
struct Request {
  std::string path;
  std::span<const std::string> names;
};

Result<Request> read_request(const std::vector<Tensor>& inputs) {
  const Tensor &prefix = inputs[0], &names = inputs[1], &slices = inputs[2];
  for (const Tensor* t : {&prefix, &names, &slices})
    if (t->dtype() != DType::kString)
      return invalid_argument("prefix, names and slices must be strings, got {}", t->str());
  if (prefix.elements() != 1) return invalid_argument("prefix must be one path, got {}", prefix.str());
  if (names.elements() != slices.elements())
    return invalid_argument("{} tensor_names but {} shape_and_slices", names.elements(), slices.elements());
  for (int64_t i = 0; i < names.elements(); ++i)
    if (const std::string& slice = slices.data<std::string>()[i]; !slice.empty())
      return make_error(Code::kUnimplemented,
                        "tensor '{}': slice \"{}\" of a tensor; only whole ones are saved and restored",
                        names.data<std::string>()[i], slice);
  return Request{prefix.data<std::string>()[0], names.values<std::string>()};
}

Status write_whole(FileSystem& files, const std::string& path, const EncodedTensors& encoded) {
  TROUPE_ASSIGN(const auto file, files.create(path));
  TROUPE_RETURN_IF_ERROR(file->append(encoded.header.data(), encoded.header.size()));
  for (const auto& [data, bytes] : encoded.data) TROUPE_RETURN_IF_ERROR(file->append(data, bytes));
  TROUPE_RETURN_IF_ERROR(file->sync());
  return file->close();
}

std::string directory_of(const std::string& path) {
  const std::string directory = std::filesystem::path(path).parent_path().string();
  return directory.empty() ? "." : directory;
}

/// The file is written beside its place and moved there when it is whole, so that a crash leaves the one before.
Status save(FileSystem& files, const std::string& path, const TensorMap& tensors, int64_t step) {
  TROUPE_ASSIGN(const EncodedTensors encoded, encode_safetensors(tensors, -1));
  const std::string directory = directory_of(path);
  TROUPE_RETURN_IF_ERROR(files.make_directories(directory));
  const std::string temporary = fmt::format("{}.{}.temporary", path, step);
  Status status = write_whole(files, temporary, encoded);
  if (status.ok()) status = files.rename(temporary, path);
  if (!status.ok()) {
    (void)files.remove(temporary);  // the first error is the one to report
    return status;
  }
  return files.sync_directory(directory);
}

class SaveKernel final : public BlockingKernel {
 public:
  Result<std::vector<Tensor>> run(const BlockingRequest& asked) override {
    TROUPE_ASSIGN(const Request request, read_request(asked.inputs));
    if (request.names.size() != asked.inputs.size() - 3)
      return invalid_argument("{} tensor_names for {} tensors", request.names.size(), asked.inputs.size() - 3);
    TensorMap tensors;
    for (size_t i = 0; i < request.names.size(); ++i)
      if (!tensors.emplace(request.names[i], asked.inputs[i + 3]).second)
        return invalid_argument("tensor name '{}' is given twice", request.names[i]);
    TROUPE_RETURN_IF_ERROR(save(*files_, request.path, tensors, asked.step));
    return std::vector<Tensor>();
  }

 private:
  const std::shared_ptr<FileSystem> files_ = make_posix_file_system();
};

class RestoreKernel final : public BlockingKernel {
 public:
  explicit RestoreKernel(const KernelInit& init) : dtypes_(init.output_dtypes) {}

  Result<std::vector<Tensor>> run(const BlockingRequest& asked) override {
    TROUPE_ASSIGN(const Request request, read_request(asked.inputs));
    if (request.names.size() != dtypes_.size())
      return invalid_argument("{} tensor_names for {} dtypes", request.names.size(), dtypes_.size());
    TROUPE_ASSIGN(const TensorFile file, read_safetensors(request.path));
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < dtypes_.size(); ++i) {
      const auto at = file.tensors.find(request.names[i]);
      if (at == file.tensors.end())
        return make_error(Code::kNotFound, "{} has no tensor '{}' (it has {} others)", request.path, request.names[i],
                          file.tensors.size());
      if (at->second.dtype() != dtypes_[i])
        return invalid_argument("tensor '{}' of {} is {}, asked for as {}", request.names[i], request.path,
                                to_string(at->second.dtype()), to_string(dtypes_[i]));
      // Of the whole file only what is asked for counts as the device's memory.
      TROUPE_ASSIGN(Tensor tensor, at->second.clone(asked.allocator));
      tensors.push_back(std::move(tensor));
    }
    return tensors;
  }

 private:
  const std::vector<DType> dtypes_;
};

/// Tensors of several files become one file; then the several go, and on request the directories that they leave empty.
class MergeKernel final : public BlockingKernel {
 public:
  explicit MergeKernel(const KernelInit& init)
      : delete_directories_(init.attr<bool>("delete_old_dirs")), may_miss_(init.attr<bool>("allow_missing_files")) {}

  Result<std::vector<Tensor>> run(const BlockingRequest& asked) override {
    if (asked.inputs[1].elements() != 1)
      return invalid_argument("destination_prefix must be one path, got {}", asked.inputs[1].str());
    const std::string& destination = asked.inputs[1].data<std::string>()[0];
    const auto sources = asked.inputs[0].values<std::string>();
    TensorMap tensors;
    size_t missing = 0;
    for (const std::string& path : sources) {
      auto file = read_safetensors(path);
      if (!file.ok() && file.error().code == Code::kNotFound && may_miss_ && ++missing < sources.size()) continue;
      if (!file.ok()) return std::move(file.error());
      for (auto& [name, tensor] : file->tensors)
        if (!tensors.emplace(name, std::move(tensor)).second)
          return invalid_argument("tensor '{}' of '{}' is in another file too", name, path);
    }
    TROUPE_RETURN_IF_ERROR(save(*files_, destination, tensors, asked.step));
    for (const std::string& path : sources) {
      std::error_code ignored;  // the merged file is there, which is what counts
      if (std::filesystem::equivalent(path, destination, ignored)) continue;
      (void)files_->remove(path).ok();
      const std::string directory = directory_of(path);
      if (delete_directories_ && directory != directory_of(destination)) std::filesystem::remove(directory, ignored);
    }
    return std::vector<Tensor>();
  }

 private:
  const bool delete_directories_, may_miss_;
  const std::shared_ptr<FileSystem> files_ = make_posix_file_system();
};

Status save_shape(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(0, 0));
  TROUPE_RETURN_IF_ERROR(c.with_rank(1, 1));
  return c.with_rank(2, 1).status();
}

}  // namespace

void register_save_restore_ops(OpRegistry& ops, KernelRegistry& kernels) {
  ops.add(
      OpDef("SaveV2")
          .input("prefix: string")
          .input("tensor_names: string")
          .input("shape_and_slices: string")
          .input("tensors: dtypes")
          .attr("dtypes: list(type) >= 1")
          .doc("Writes the tensors under their names to the safetensors file `prefix`, by way of a temporary file, so "
               "that a crash leaves the former one. `shape_and_slices` must be empty strings. Fails for string "
               "tensors, a name given twice, and what the system refuses.")
          .shape(save_shape)
          .stateful(),
      not_differentiable("it has no output"));
  kernels.add<SaveKernel>("SaveV2", DeviceKind::kCpu, {});

  ops.add(
      OpDef("RestoreV2")
          .input("prefix: string")
          .input("tensor_names: string")
          .input("shape_and_slices: string")
          .output("tensors: dtypes")
          .attr("dtypes: list(type) >= 1")
          .doc("Reads tensors by name from the safetensors file `prefix`. `shape_and_slices` must be empty strings. "
               "Fails when a tensor is not there or has another type than `dtypes` say, and for a damaged file.")
          .shape(save_shape)
          .stateful(),
      not_differentiable("the tensors come from a file"));
  kernels.add<RestoreKernel>("RestoreV2", DeviceKind::kCpu, {});

  ops.add(OpDef("MergeV2Checkpoints")
              .input("checkpoint_prefixes: string")
              .input("destination_prefix: string")
              .attr("delete_old_dirs: bool = true")
              .attr("allow_missing_files: bool = false")
              .doc("Writes the tensors of several files of SaveV2 to one and removes the several, on `delete_old_dirs` "
                   "with the directories that are empty then. Fails for a file that is not there, unless "
                   "`allow_missing_files` and there is one, and for a name in two of them.")
              .shape([](ShapeContext& c) -> Status {
                TROUPE_RETURN_IF_ERROR(c.with_rank(0, 1));
                return c.with_rank(1, 0).status();
              })
              .stateful(),
          not_differentiable("it has no output"));
  kernels.add<MergeKernel>("MergeV2Checkpoints", DeviceKind::kCpu, {});
}

}  // namespace troupe
