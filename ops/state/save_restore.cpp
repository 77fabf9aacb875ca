// SPDX-License-Identifier: Apache-2.0
// SaveV2 and RestoreV2: tensors to and from one safetensors file, whose path is the `prefix`; Save, SaveSlices, Restore
// and RestoreSlice, the former versions. MergeV2Checkpoints makes one such file of several.
#include <filesystem>
#include <map>
#include <optional>

#include "io/data_folders.h"
#include "io/file_pattern.h"
#include "io/safetensors.h"
#include "io/tensor_slice.h"
#include "ops/state/register.h"
#include "troupe/blocking_kernel.h"
#include "troupe/checkpoint.h"

namespace troupe {
namespace {

/// What the first inputs ask for: a path, names, and, but in Save and Restore, a slice for each.
struct Request {
  std::string path;
  std::vector<std::string> names;
  std::vector<std::optional<TensorSlice>> slices;
};

bool takes_slices(std::string_view op) { return op != "Save" && op != "Restore"; }

Result<Request> read_request(const std::vector<Tensor>& inputs, bool with_slices) {
  const Tensor &prefix = inputs[0], &names = inputs[1], &slices = inputs[with_slices ? 2 : 1];
  for (const Tensor* t : {&prefix, &names, &slices})
    if (t->dtype() != DType::kString)
      return invalid_argument("prefix, names and slices must be strings, got {}", t->str());
  if (prefix.elements() != 1) return invalid_argument("prefix must be one path, got {}", prefix.str());
  if (names.elements() != slices.elements())
    return invalid_argument("{} tensor_names but {} shape_and_slices", names.elements(), slices.elements());
  const auto all = names.values<std::string>();
  Request out{prefix.data<std::string>()[0], {all.begin(), all.end()}, {}};
  out.slices.resize(out.names.size());
  for (size_t i = 0; i < out.names.size() && with_slices; ++i) {
    const std::string& text = slices.data<std::string>()[i];
    if (text.empty()) continue;
    auto slice = TensorSlice::parse(text);
    if (!slice.ok()) return invalid_argument("tensor '{}': {}", out.names[i], slice.error().message);
    out.slices[i] = std::move(*slice);
  }
  return out;
}

/// Parts of one tensor, put together.
struct Parts {
  Tensor whole;
  std::vector<TensorSlice> slices;
  int64_t elements = 0;

  Status add(const TensorSlice& slice, const Tensor& value, const std::shared_ptr<Allocator>& allocator) {
    if (!whole.defined()) {
      TROUPE_ASSIGN(whole, Tensor::zeros(value.dtype(), slice.whole, allocator));
    }
    if (value.dtype() != whole.dtype() || slice.whole != whole.shape())
      return invalid_argument("a part of {} {} and one of {} {}", to_string(whole.dtype()), whole.shape().str(),
                              to_string(value.dtype()), slice.whole.str());
    for (const TensorSlice& other : slices)
      if (slice.overlaps(other)) return invalid_argument("two of its parts overlap");
    slices.push_back(slice);
    elements += slice.part.elements();
    return slice.write(whole, value);
  }
};

/// Whole tensors by name; those given in parts are put together. Errors: a name given twice, parts that are not all.
Result<TensorMap> whole_tensors(const Request& request, std::span<const Tensor> values,
                                const std::shared_ptr<Allocator>& allocator) {
  if (request.names.size() != values.size())
    return invalid_argument("{} tensor_names for {} tensors", request.names.size(), values.size());
  TensorMap tensors;
  std::map<std::string, Parts> parts;
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string& name = request.names[i];
    if (!request.slices[i]) {
      if (!tensors.emplace(name, values[i]).second) return invalid_argument("tensor name '{}' is given twice", name);
    } else if (const Status status = parts[name].add(*request.slices[i], values[i], allocator); !status.ok()) {
      return make_error(status.error().code, "tensor '{}': {}", name, status.error().message);
    }
  }
  for (auto& [name, p] : parts) {
    if (p.elements != p.whole.elements())
      return invalid_argument("tensor '{}': its parts have {} of the {} elements of {}; all must be saved at once",
                              name, p.elements, p.whole.elements(), p.whole.shape().str());
    if (!tensors.emplace(name, std::move(p.whole)).second)
      return invalid_argument("tensor name '{}' is given twice", name);
  }
  return tensors;
}

std::string directory_of(const std::string& path) {
  const std::string directory = std::filesystem::path(path).parent_path().string();
  return directory.empty() ? "." : directory;
}

Status write_whole(WritableFile& file, const EncodedTensors& encoded) {
  TROUPE_RETURN_IF_ERROR(file.append(encoded.header.data(), encoded.header.size()));
  for (const auto& [data, bytes] : encoded.data) TROUPE_RETURN_IF_ERROR(file.append(data, bytes));
  return file.sync();
}

/// The file is written beside its place and moved there when it is whole, so that a crash leaves the one before. What
/// an earlier crash left goes.
Status save(FileSystem& files, const std::string& path, const TensorMap& tensors) {
  TROUPE_ASSIGN(const EncodedTensors encoded, encode_safetensors(tensors, -1));
  const std::string directory = directory_of(path);
  TROUPE_RETURN_IF_ERROR(files.make_directories(directory));
  files.remove_temporaries(path);
  TROUPE_ASSIGN(auto temporary, files.create_temporary(path));
  auto& [name, file] = temporary;
  Status status = write_whole(*file, encoded);
  if (status.ok()) status = files.rename(name, path);
  if (!status.ok()) {
    (void)files.remove(name);  // the first error is the one to report
    return status;
  }
  TROUPE_RETURN_IF_ERROR(file->close());
  return files.sync_directory(directory);
}

class SaveKernel final : public BlockingKernel {
 public:
  explicit SaveKernel(const KernelInit& init) : slices_(takes_slices(init.op)), folders_(init.data_folders) {}
  Result<std::vector<Tensor>> run(const BlockingRequest& asked) override {
    TROUPE_ASSIGN(const Request request, read_request(asked.inputs, slices_));
    TROUPE_RETURN_IF_ERROR(may_touch(folders_, request.path));
    const auto values = std::span(asked.inputs).subspan(slices_ ? 3 : 2);
    TROUPE_ASSIGN(const TensorMap tensors, whole_tensors(request, values, asked.allocator));
    TROUPE_RETURN_IF_ERROR(save(*files_, request.path, tensors));
    return std::vector<Tensor>();
  }

 private:
  const bool slices_;
  const std::shared_ptr<const DataFolders> folders_;
  const std::shared_ptr<FileSystem> files_ = make_posix_file_system();
};

/// Reads the files that a path names: one, or all that match it.
Result<TensorMap> read_files(const std::string& path, bool pattern, const std::shared_ptr<const DataFolders>& folders) {
  TROUPE_RETURN_IF_ERROR(may_touch(folders, path));
  auto file = read_safetensors(path);
  if (file.ok()) return std::move(file->tensors);
  if (!pattern || file.error().code != Code::kNotFound) return std::move(file.error());
  TROUPE_ASSIGN(const auto paths, matching_files(path));
  if (paths.empty()) return std::move(file.error());
  TensorMap out;
  for (const std::string& one : paths) {
    TROUPE_RETURN_IF_ERROR(may_touch(folders, one));
    TROUPE_ASSIGN(TensorFile part, read_safetensors(one));
    out.merge(part.tensors);
  }
  return out;
}

class RestoreKernel final : public BlockingKernel {
 public:
  explicit RestoreKernel(const KernelInit& init)
      : dtypes_(init.output_dtypes), slices_(takes_slices(init.op)), pattern_(init.op != "RestoreV2"),
        folders_(init.data_folders) {}

  Result<std::vector<Tensor>> run(const BlockingRequest& asked) override {
    TROUPE_ASSIGN(const Request request, read_request(asked.inputs, slices_));
    if (request.names.size() != dtypes_.size())
      return invalid_argument("{} tensor_names for {} dtypes", request.names.size(), dtypes_.size());
    TROUPE_ASSIGN(const TensorMap file, read_files(request.path, pattern_, folders_));
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < dtypes_.size(); ++i) {
      const auto at = file.find(request.names[i]);
      if (at == file.end())
        return make_error(Code::kNotFound, "{} has no tensor '{}' (it has {} others)", request.path, request.names[i],
                          file.size());
      if (at->second.dtype() != dtypes_[i])
        return invalid_argument("tensor '{}' of {} is {}, asked for as {}", request.names[i], request.path,
                                to_string(at->second.dtype()), to_string(dtypes_[i]));
      // Of the whole file only what is asked for counts as the device's memory.
      const auto& slice = request.slices[i];
      auto tensor = slice ? slice->read(at->second, asked.allocator) : at->second.clone(asked.allocator);
      if (!tensor.ok()) return make_error(tensor.error().code, "tensor '{}': {}", at->first, tensor.error().message);
      tensors.push_back(std::move(*tensor));
    }
    return tensors;
  }

 private:
  const std::vector<DType> dtypes_;
  const bool slices_, pattern_;
  const std::shared_ptr<const DataFolders> folders_;
};

/// Tensors of several files become one file; then the several go, and on request the directories that they leave empty.
class MergeKernel final : public BlockingKernel {
 public:
  explicit MergeKernel(const KernelInit& init)
      : delete_directories_(init.attr<bool>("delete_old_dirs")), may_miss_(init.attr<bool>("allow_missing_files")),
        folders_(init.data_folders) {}

  Result<std::vector<Tensor>> run(const BlockingRequest& asked) override {
    if (asked.inputs[1].elements() != 1)
      return invalid_argument("destination_prefix must be one path, got {}", asked.inputs[1].str());
    const std::string& destination = asked.inputs[1].data<std::string>()[0];
    const auto sources = asked.inputs[0].values<std::string>();
    TensorMap tensors;
    size_t missing = 0;
    TROUPE_RETURN_IF_ERROR(may_touch(folders_, destination));
    for (const std::string& path : sources) {
      TROUPE_RETURN_IF_ERROR(may_touch(folders_, path));
      auto file = read_safetensors(path);
      if (!file.ok() && file.error().code == Code::kNotFound && may_miss_ && ++missing < sources.size()) continue;
      if (!file.ok()) return std::move(file.error());
      for (auto& [name, tensor] : file->tensors)
        if (!tensors.emplace(name, std::move(tensor)).second)
          return invalid_argument("tensor '{}' of '{}' is in another file too", name, path);
    }
    TROUPE_RETURN_IF_ERROR(save(*files_, destination, tensors));
    for (const std::string& path : sources) {
      std::error_code ignored;  // the merged file is there, which is what counts
      if (std::filesystem::equivalent(path, destination, ignored)) continue;
      (void)files_->remove(path).ok();
      const std::string directory = directory_of(path);
      if (delete_directories_ && directory != directory_of(destination) && may_touch(folders_, directory).ok())
        std::filesystem::remove(directory, ignored);
    }
    return std::vector<Tensor>();
  }

 private:
  const bool delete_directories_, may_miss_;
  const std::shared_ptr<const DataFolders> folders_;
  const std::shared_ptr<FileSystem> files_ = make_posix_file_system();
};

Status check_names(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(c.with_rank(0, 0).status());
  return c.with_rank(1, 1).status();
}
Status check_names_and_slices(ShapeContext& c) {
  TROUPE_RETURN_IF_ERROR(check_names(c));
  return c.with_rank(2, 1).status();
}

/// The shapes of slices that are known.
Status restore_shape(ShapeContext& c) {
  if (c.num_inputs() < 3) return {};
  const auto slices = c.constant_input(2);
  for (int i = 0; slices && i < c.num_outputs() && i < slices->elements(); ++i) {
    const std::string& text = slices->data<std::string>()[i];
    if (text.empty()) continue;
    TROUPE_ASSIGN(const TensorSlice slice, TensorSlice::parse(text));
    c.set_output(i, slice.part);
  }
  return {};
}

}  // namespace

void register_save_restore_ops(OpRegistry& ops, KernelRegistry& kernels) {
  const char *no_output = "it has no output", *from_file = "the tensors come from a file";
  const std::string writes =
      "Writes the tensors under their names to a safetensors file, by way of a temporary file, so that a crash leaves "
      "the former one. ";
  const std::string parts =
      "A tensor may be given in parts, with the same name and the shapes and slices of all, like \"4 6 0,2:-\" for two "
      "rows of a tensor [4,6]. ";
  const std::string fails = "Fails for string tensors, a name given twice, and what the system refuses.";
  ops.add(OpDef("SaveV2")
              .input("prefix: string")
              .input("tensor_names: string")
              .input("shape_and_slices: string")
              .input("tensors: dtypes")
              .attr("dtypes: list(type) >= 1")
              .doc(writes + parts + fails)
              .shape(check_names_and_slices)
              .stateful(),
          not_differentiable(no_output));
  ops.add(OpDef("SaveSlices")
              .input("filename: string")
              .input("tensor_names: string")
              .input("shapes_and_slices: string")
              .input("data: T")
              .attr("T: list(type) >= 1")
              .doc(writes + parts + fails)
              .shape(check_names_and_slices)
              .stateful(),
          not_differentiable(no_output));
  ops.add(OpDef("Save")
              .input("filename: string")
              .input("tensor_names: string")
              .input("data: T")
              .attr("T: list(type) >= 1")
              .doc(writes + fails)
              .shape(check_names)
              .stateful(),
          not_differentiable(no_output));
  for (const char* op : {"SaveV2", "SaveSlices", "Save"}) kernels.add<SaveKernel>(op, DeviceKind::kCpu, {});

  const std::string failing =
      " Fails when a tensor is not there or has another type than the one asked for, and for a damaged file.";
  ops.add(OpDef("RestoreV2")
              .input("prefix: string")
              .input("tensor_names: string")
              .input("shape_and_slices: string")
              .output("tensors: dtypes")
              .attr("dtypes: list(type) >= 1")
              .doc("Reads tensors, or slices of them, by name from the safetensors file `prefix`." + failing)
              .shape([](ShapeContext& c) -> Status {
                TROUPE_RETURN_IF_ERROR(check_names_and_slices(c));
                return restore_shape(c);
              })
              .stateful(),
          not_differentiable(from_file));
  for (const bool slices : {false, true}) {
    OpDef op(slices ? "RestoreSlice" : "Restore");
    op.input("file_pattern: string").input("tensor_name: string");
    if (slices) op.input("shape_and_slice: string");
    ops.add(op.output("tensor: dt")
                .attr("dt: type")
                .attr("preferred_shard: int = -1")
                .doc(std::string("Reads a tensor") + (slices ? ", or a slice of it," : "") +
                     " by name from a safetensors file, or from those whose paths match." + failing)
                .shape(restore_shape)
                .stateful(),
            not_differentiable(from_file));
  }
  for (const char* op : {"RestoreV2", "RestoreSlice", "Restore"}) kernels.add<RestoreKernel>(op, DeviceKind::kCpu, {});

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
