// SPDX-License-Identifier: Apache-2.0
// SaveV2 and RestoreV2: tensors to and from checkpoints; Save, SaveSlices, Restore and RestoreSlice, the former
// versions. MergeV2Checkpoints makes one checkpoint of several. What is written is TensorFlow's format of the op, or a
// safetensors file where the path ends so; what is read may be of any format.
#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "base/join.h"
#include "base/printable.h"
#include "io/checkpoint_reader.h"
#include "io/replacing_file.h"
#include "io/tensor_bundle.h"
#include "ops/state/register.h"
#include "troupe/blocking_kernel.h"

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
  if (prefix.data<std::string>()[0].empty()) return invalid_argument("the path of a checkpoint is empty");
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

TensorToSave to_save(const std::string& name, const Tensor& value) {
  return {name, value.dtype(), value.shape(), {}, [value]() -> Result<Tensor> { return value; }};
}

/// Whole tensors and parts as they are given. Errors: a part that has not the shape of its slice.
Result<std::vector<TensorToSave>> given_tensors(const Request& request, std::span<const Tensor> values) {
  std::vector<TensorToSave> out;
  for (size_t i = 0; i < values.size(); ++i) {
    out.push_back(to_save(request.names[i], values[i]));
    if (!request.slices[i]) continue;
    const TensorSlice& slice = *request.slices[i];
    if (values[i].shape() != slice.part)
      return invalid_argument("tensor '{}': a slice of shape {} is given a tensor of shape {}", request.names[i],
                              slice.part.str(), values[i].shape().str());
    out.back().whole = slice.whole;
    out.back().slice = slice;
  }
  return out;
}

/// Whole tensors; those given in parts are put together. Errors: parts that are not all.
Result<std::vector<TensorToSave>> whole_tensors(const Request& request, std::span<const Tensor> values,
                                                const std::shared_ptr<Allocator>& allocator) {
  std::vector<TensorToSave> out;
  std::map<std::string, Parts> parts;
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string& name = request.names[i];
    if (!request.slices[i]) out.push_back(to_save(name, values[i]));
    else if (const Status status = parts[name].add(*request.slices[i], values[i], allocator); !status.ok())
      return make_error(status.error().code, "tensor '{}': {}", name, status.error().message);
  }
  for (const auto& [name, p] : parts) {
    if (p.elements != p.whole.elements())
      return invalid_argument("tensor '{}': its parts have {} of the {} elements of {}; all must be saved at once",
                              name, p.elements, p.whole.elements(), p.whole.shape().str());
    out.push_back(to_save(name, p.whole));
  }
  return out;
}

/// What a path is written as.
CheckpointKind kind_for(const std::string& path, CheckpointKind usual) {
  return path.ends_with(".safetensors") ? CheckpointKind::kSafetensors : usual;
}

class SaveKernel final : public BlockingKernel {
 public:
  explicit SaveKernel(const KernelInit& init)
      : slices_(takes_slices(init.op)),
        usual_(init.op == "SaveV2" ? CheckpointKind::kBundle : CheckpointKind::kSlices), access_{
                                                                                             make_posix_file_system(),
                                                                                             init.data_folders} {}
  Result<std::vector<Tensor>> run(const BlockingRequest& asked) override {
    TROUPE_ASSIGN(const Request request, read_request(asked.inputs, slices_));
    const CheckpointKind kind = kind_for(request.path, usual_);
    const auto values = std::span(asked.inputs).subspan(slices_ ? 3 : 2);
    if (request.names.size() != values.size())
      return invalid_argument("{} tensor_names for {} tensors", request.names.size(), values.size());
    TROUPE_ASSIGN(const auto tensors, kind == CheckpointKind::kSafetensors
                                          ? whole_tensors(request, values, asked.allocator)
                                          : given_tensors(request, values));
    TROUPE_RETURN_IF_ERROR(write_checkpoint(access_, kind, request.path, tensors));
    return std::vector<Tensor>();
  }

 private:
  const bool slices_;
  const CheckpointKind usual_;
  const FileAccess access_;
};

class RestoreKernel final : public BlockingKernel {
 public:
  explicit RestoreKernel(const KernelInit& init)
      : dtypes_(init.output_dtypes),
        slices_(takes_slices(init.op)), access_{make_posix_file_system(), init.data_folders} {}

  Result<std::vector<Tensor>> run(const BlockingRequest& asked) override {
    TROUPE_ASSIGN(const Request request, read_request(asked.inputs, slices_));
    if (request.names.size() != dtypes_.size())
      return invalid_argument("{} tensor_names for {} dtypes", request.names.size(), dtypes_.size());
    TROUPE_ASSIGN(const CheckpointReader file, CheckpointReader::open(access_, request.path, true));
    if (const auto missing = file.missing(request.names); !missing.empty()) {
      std::vector<std::string> quoted;
      for (const std::string& name : missing) quoted.push_back(in_quotes(name));
      return make_error(Code::kNotFound, "{} has no tensor {} (it has {} others)", request.path, join(quoted, ", "),
                        file.entries().size());
    }
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < dtypes_.size(); ++i) {
      const std::string& name = request.names[i];
      TROUPE_ASSIGN(const auto described, file.find(name));
      if (described.first != dtypes_[i])
        return invalid_argument("tensor '{}' of {} is {}, asked for as {}", name, request.path,
                                to_string(described.first), to_string(dtypes_[i]));
      // Of the whole file only what is asked for counts as the device's memory.
      TROUPE_ASSIGN(Tensor tensor, file.read(name, request.slices[i], asked.allocator));
      tensors.push_back(std::move(tensor));
    }
    return tensors;
  }

 private:
  const std::vector<DType> dtypes_;
  const bool slices_;
  const FileAccess access_;
};

/// Tensors of several checkpoints become one; then the several go, and on request the directories that they leave
/// empty.
class MergeKernel final : public BlockingKernel {
 public:
  explicit MergeKernel(const KernelInit& init)
      : delete_directories_(init.attr<bool>("delete_old_dirs")),
        may_miss_(init.attr<bool>("allow_missing_files")), access_{make_posix_file_system(), init.data_folders} {}

  Result<std::vector<Tensor>> run(const BlockingRequest& asked) override {
    if (asked.inputs[1].elements() != 1)
      return invalid_argument("destination_prefix must be one path, got {}", asked.inputs[1].str());
    const std::string& destination = asked.inputs[1].data<std::string>()[0];
    const auto sources = asked.inputs[0].values<std::string>();
    TROUPE_RETURN_IF_ERROR(may_touch(access_.folders, destination));
    const auto is_bundle = [this](const std::string& path) {
      std::error_code ignored;
      return may_touch(access_.folders, path).ok() && std::filesystem::exists(bundle_index(path), ignored);
    };
    if (kind_for(destination, CheckpointKind::kBundle) == CheckpointKind::kBundle &&
        std::ranges::any_of(sources, is_bundle)) {
      TROUPE_RETURN_IF_ERROR(merge_bundles(access_, sources, destination, may_miss_));
    } else {
      TROUPE_RETURN_IF_ERROR(merge_files(sources, destination));
    }
    for (const std::string& path : sources) {
      std::error_code ignored;  // the merged checkpoint is there, which is what counts
      const std::string directory = folder_of(path);
      if (delete_directories_ && directory != folder_of(destination) && may_touch(access_.folders, directory).ok())
        std::filesystem::remove(directory, ignored);
    }
    return std::vector<Tensor>();
  }

 private:
  /// Reads and writes the tensors, of whatever formats.
  Status merge_files(std::span<const std::string> sources, const std::string& destination) const {
    std::vector<CheckpointReader> files;
    for (const std::string& path : sources) {
      auto file = CheckpointReader::open(access_, path);
      const bool last = &path == &sources.back();
      if (!file.ok() && file.error().code == Code::kNotFound && may_miss_ && !(last && files.empty())) continue;
      if (!file.ok()) return std::move(file).failure();
      files.push_back(std::move(*file));
    }
    std::vector<TensorToSave> tensors;
    std::map<std::string, const CheckpointReader*> seen;
    for (const CheckpointReader& file : files)
      for (const auto& entry : file.entries()) {
        const std::string name(entry.name);
        if (!seen.emplace(name, &file).second)
          return invalid_argument("tensor '{}' of '{}' is in another file too", name, file.path());
        TROUPE_ASSIGN(const DType dtype, dtype_of_number(entry.type));
        tensors.push_back({name, dtype, entry.shape, {}, [&file, name] { return file.read(name, {}); }});
      }
    TROUPE_RETURN_IF_ERROR(
        write_checkpoint(access_, kind_for(destination, CheckpointKind::kBundle), destination, tensors));
    for (const CheckpointReader& file : files) {
      std::error_code ignored;
      if (std::filesystem::equivalent(file.path(), destination, ignored)) continue;
      (void)access_.files->remove(file.path()).ok();
    }
    return {};
  }

  const bool delete_directories_, may_miss_;
  const FileAccess access_;
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
  const std::string writes_v2 =
      "Writes the tensors under their names as a TensorFlow checkpoint (V2), the files prefix.index and prefix.data-*, "
      "or "
      "where `prefix` ends in .safetensors as such a file. ";
  const std::string writes_v1 =
      "Writes the tensors under their names as a TensorFlow checkpoint (V1), one file, or where `filename` ends in "
      ".safetensors as such a file. ";
  const std::string crash = "A crash leaves the former one. ";
  const std::string parts =
      "A tensor may be given in parts, with the same name and the shapes and slices of all, like \"4 6 0,2:-\" for two "
      "rows of a tensor [4,6]; those of a safetensors file must be all. ";
  const std::string fails = "Fails for a name given twice, parts that overlap, and what the system refuses.";
  ops.add(OpDef("SaveV2")
              .input("prefix: string")
              .input("tensor_names: string")
              .input("shape_and_slices: string")
              .input("tensors: dtypes")
              .attr("dtypes: list(type) >= 1")
              .doc(writes_v2 + crash + parts + fails)
              .shape(check_names_and_slices)
              .stateful(),
          not_differentiable(no_output));
  ops.add(OpDef("SaveSlices")
              .input("filename: string")
              .input("tensor_names: string")
              .input("shapes_and_slices: string")
              .input("data: T")
              .attr("T: list(type) >= 1")
              .doc(writes_v1 + crash + parts + fails)
              .shape(check_names_and_slices)
              .stateful(),
          not_differentiable(no_output));
  ops.add(OpDef("Save")
              .input("filename: string")
              .input("tensor_names: string")
              .input("data: T")
              .attr("T: list(type) >= 1")
              .doc(writes_v1 + crash + fails)
              .shape(check_names)
              .stateful(),
          not_differentiable(no_output));
  for (const char* op : {"SaveV2", "SaveSlices", "Save"}) kernels.add<SaveKernel>(op, DeviceKind::kCpu, {});

  const std::string failing =
      " Fails when tensors are not there, which it lists, or have another type than the one asked for, and for a "
      "damaged file.";
  ops.add(
      OpDef("RestoreV2")
          .input("prefix: string")
          .input("tensor_names: string")
          .input("shape_and_slices: string")
          .output("tensors: dtypes")
          .attr("dtypes: list(type) >= 1")
          .cost(move_cost)
          .doc("Reads tensors, or slices of them, by name from the checkpoint `prefix`: TensorFlow's (V2 or V1) or a "
               "safetensors file, whatever is there." +
               failing)
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
    ops.add(
        op.output("tensor: dt")
            .attr("dt: type")
            .attr("preferred_shard: int = -1")
            .doc(
                std::string("Reads a tensor") + (slices ? ", or a slice of it," : "") +
                " by name from a checkpoint, TensorFlow's or a safetensors file, or from the files whose paths match." +
                failing)
            .shape(restore_shape)
            .stateful(),
        not_differentiable(from_file));
  }
  for (const char* op : {"RestoreV2", "RestoreSlice", "Restore"}) kernels.add<RestoreKernel>(op, DeviceKind::kCpu, {});

  ops.add(
      OpDef("MergeV2Checkpoints")
          .input("checkpoint_prefixes: string")
          .input("destination_prefix: string")
          .attr("delete_old_dirs: bool = true")
          .attr("allow_missing_files: bool = false")
          .doc("Makes one checkpoint of several of SaveV2 and removes the several, on `delete_old_dirs` with the "
               "directories that are empty then. Parts of a tensor come together. Fails for a checkpoint that is not "
               "there, unless `allow_missing_files` and there is one, and for a name in two of them.")
          .shape([](ShapeContext& c) -> Status {
            TROUPE_RETURN_IF_ERROR(c.with_rank(0, 1));
            return c.with_rank(1, 0).status();
          })
          .stateful(),
      not_differentiable("it has no output"));
  kernels.add<MergeKernel>("MergeV2Checkpoints", DeviceKind::kCpu, {});
}

}  // namespace troupe
