// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint_reader.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/join.h"
#include "io/file_kind.h"
#include "io/file_pattern.h"
#include "io/safetensors.h"
#include "io/saved_tensors.pb.h"
#include "io/slice_checkpoint.h"
#include "io/sorted_table.h"
#include "io/tensor_bundle.h"
#include "troupe/checkpoint.h"

namespace troupe {
namespace {

/// A part that has something of what is wanted.
struct UsedPart {
  size_t source = 0, part = 0;
  TensorSlice slice;
};

/// Marks elements of a slice, once each.
class ElementMarks {
 public:
  explicit ElementMarks(const TensorSlice& all) : all_(all), marks_(static_cast<size_t>(all.part.elements())) {}
  /// Whether none was marked before.
  bool add(const TensorSlice& some) {
    std::vector<int64_t> at = some.begin;
    const int rank = some.whole.rank();
    for (int64_t left = some.part.elements(); left > 0; --left) {
      int64_t offset = 0;
      for (int d = 0; d < rank; ++d) offset = offset * all_.part[d] + at[size_t(d)] - all_.begin[size_t(d)];
      if (marks_[static_cast<size_t>(offset)]) return false;
      marks_[static_cast<size_t>(offset)] = true;
      for (int d = rank - 1; d >= 0; --d) {
        if (++at[size_t(d)] < some.begin[size_t(d)] + some.part[d]) break;
        at[size_t(d)] = some.begin[size_t(d)];
      }
    }
    return true;
  }

 private:
  const TensorSlice& all_;
  std::vector<bool> marks_;
};

/// Whether two parts have an element of what is wanted in common; all have together as many elements as that.
bool any_overlap(const std::vector<UsedPart>& used, const TensorSlice& wanted) {
  constexpr size_t kFew = 1000;
  if (used.size() > kFew) {
    ElementMarks marks(wanted);
    return !std::ranges::all_of(used, [&](const UsedPart& u) { return marks.add(u.slice.intersection(wanted)); });
  }
  for (size_t i = 0; i < used.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (used[i].slice.intersection(wanted).overlaps(used[j].slice)) return true;
  return false;
}

/// Says nothing: what is wrong with the text is told by who asked.
class NoMessages final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
};

/// Whether a checkpoint is there by that prefix, path or pattern, by which TensorFlow calls one of several files (V1).
bool is_checkpoint(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(bundle_index(path.string()), ignored) ||
      std::filesystem::is_regular_file(path, ignored))
    return true;
  if (path.filename().string().find_first_of("*?[") == std::string::npos) return false;
  const auto files = matching_files(path.string());
  return files.ok() && !files->empty();
}

}  // namespace

Result<std::string> checkpoint_of_folder(const std::string& folder) {
  namespace fs = std::filesystem;
  const fs::path in = folder;
  std::error_code error;
  if (const fs::path state = in / "checkpoint"; fs::is_regular_file(state, error)) {
    std::ifstream file(state, std::ios::binary);
    google::protobuf::io::IstreamInputStream stream(&file);
    google::protobuf::TextFormat::Parser parser;
    NoMessages none;
    parser.RecordErrorsTo(&none);
    parser.AllowUnknownField(true);
    proto::CheckpointState latest;
    if (!parser.Parse(&stream, &latest) || latest.model_checkpoint_path().empty())
      return make_error(Code::kDataLoss, "'{}' does not say which checkpoint is the latest", state.string());
    const fs::path named = in / latest.model_checkpoint_path();  // an absolute path stays as it is
    const fs::path moved = in / named.filename();
    return (is_checkpoint(named) || !is_checkpoint(moved) ? named : moved).string();
  }
  if (const fs::path variables = in / "variables" / "variables"; is_checkpoint(variables)) return variables.string();
  if (const auto kept = Checkpointer::read_list(folder); kept.ok() && !kept->empty()) {
    TROUPE_ASSIGN(const Checkpointer::Loaded latest, Checkpointer::read_latest(folder));
    return latest.path;
  }
  std::vector<std::string> found;
  for (fs::directory_iterator it(in, error), end; !error && it != end; it.increment(error)) {
    const std::string path = it->path().string();
    if (path.ends_with(".safetensors")) found.push_back(path);
    else if (path.ends_with(".index")) found.push_back(bundle_prefix(path));
  }
  if (error) return make_error(Code::kUnavailable, "cannot list '{}': {}", folder, error.message());
  if (found.size() == 1) return found[0];
  if (found.empty()) return make_error(Code::kNotFound, "there is no checkpoint in the folder '{}'", folder);
  std::ranges::sort(found);
  return invalid_argument(
      "the folder '{}' has {} checkpoints and no file \"checkpoint\" that says which is the latest: {}", folder,
      found.size(), join(found, ", "));
}

Result<std::unique_ptr<PartSource>> open_checkpoint_file(const FileAccess& access, const std::string& path) {
  TROUPE_ASSIGN(auto file, access.open(path));
  if (SortedTable::is_one(*file)) {
    // The index of a bundle is such a table, too.
    if (const std::string prefix = bundle_prefix(path); !prefix.empty() && bundle_index(prefix) == path)
      return open_bundle(access, prefix);
    TROUPE_ASSIGN(SortedTable table, SortedTable::open(std::move(file), path));
    return open_slice_checkpoint(std::move(table));
  }
  const std::string prefix = bundle_prefix(path);
  if (!prefix.empty() && bundle_index(prefix) != path)
    return invalid_argument("'{}' has the data of a checkpoint, which is opened by '{}'", path, prefix);
  if (may_be_safetensors(*file)) return open_safetensors(std::move(file), path);
  if (bundle_index(prefix) == path || path.ends_with(".safetensors"))
    return make_error(Code::kDataLoss, "'{}' is damaged, or not a checkpoint but {}", path, kind_of_file(*file));
  return invalid_argument("'{}' is not a checkpoint but {}", path, kind_of_file(*file));
}

Result<CheckpointReader> CheckpointReader::open(const FileAccess& access, const std::string& path, bool pattern) {
  CheckpointReader out(path);
  const auto not_there = [](const auto& result) { return result.error().code == Code::kNotFound; };
  const auto take = [&out](Result<std::unique_ptr<PartSource>> source) -> Status {
    if (!source.ok()) return std::move(source).failure();
    out.sources_.push_back(std::move(*source));
    return {};
  };
  const std::string index = bundle_index(path);
  TROUPE_RETURN_IF_ERROR(may_touch(access.folders, path));
  if (auto there = access.open(index); there.ok() || !not_there(there)) {
    TROUPE_RETURN_IF_ERROR(take(open_bundle(access, path)));
  } else if (auto file = access.open(path); file.ok() || !not_there(file)) {
    TROUPE_RETURN_IF_ERROR(take(open_checkpoint_file(access, path)));
  } else {
    const auto paths = pattern && path.find_first_of("*?[") != path.npos
                           ? matching_files(path)
                           : Result<std::vector<std::string>>(std::vector<std::string>());
    if (!paths.ok()) return paths.error();
    for (const std::string& one : *paths)
      // Data are read by way of their index.
      if (const std::string prefix = bundle_prefix(one); prefix.empty() || bundle_index(prefix) == one)
        TROUPE_RETURN_IF_ERROR(take(open_checkpoint_file(access, one)));
    if (out.sources_.empty())
      return make_error(Code::kNotFound, "no checkpoint '{}': there is neither '{}' nor a file of that name", path,
                        index);
  }
  TROUPE_RETURN_IF_ERROR(out.sort_parts());
  return out;
}

Status CheckpointReader::sort_parts() {
  for (size_t s = 0; s < sources_.size(); ++s)
    for (size_t p = 0; p < sources_[s]->parts().size(); ++p) places_.push_back({s, p});
  std::ranges::stable_sort(places_, {}, [this](const Place& p) { return std::string_view(part(p).name); });
  for (size_t i = 1; i < places_.size(); ++i) {
    const SavedPart &a = part(places_[i - 1]), &b = part(places_[i]);
    if (a.name != b.name) continue;
    const std::string &first = sources_[places_[i - 1].source]->path(), &second = sources_[places_[i].source]->path();
    if (!a.slice || !b.slice)
      return make_error(Code::kDataLoss, "tensor '{}' comes twice: in '{}' and in '{}'", a.name, first, second);
    if (a.type != b.type || a.whole != b.whole)
      return make_error(Code::kDataLoss, "tensor '{}' is {}{} in '{}' and {}{} in '{}'", a.name, name_of_type(a.type),
                        a.whole.str(), first, name_of_type(b.type), b.whole.str(), second);
  }
  return {};
}

std::span<const CheckpointReader::Place> CheckpointReader::parts_of(std::string_view name) const {
  const auto found =
      std::ranges::equal_range(places_, name, {}, [this](const Place& p) { return std::string_view(part(p).name); });
  return {found.begin(), found.end()};
}

std::vector<CheckpointReader::Entry> CheckpointReader::entries() const {
  std::vector<Entry> out;
  for (const Place& place : places_) {
    const SavedPart& p = part(place);
    if (out.empty() || out.back().name != p.name) out.push_back({p.name, p.type, p.whole, 0, 0});
    Entry& entry = out.back();
    ++entry.parts;
    if (entry.bytes && p.bytes) *entry.bytes += *p.bytes;
    else entry.bytes.reset();
  }
  return out;
}

int CheckpointReader::shards() const {
  int out = 0;
  for (const auto& source : sources_) out += source->shards();
  return out;
}

Result<std::pair<DType, Shape>> CheckpointReader::find(const std::string& name) const {
  const auto found = parts_of(name);
  if (found.empty())
    return make_error(Code::kNotFound, "{} has no tensor '{}' (it has {} others)", path_, name, entries().size());
  const SavedPart& first = part(found[0]);
  auto dtype = dtype_of_number(first.type);
  if (!dtype.ok()) return make_error(dtype.error().code, "tensor '{}' of {}: {}", name, path_, dtype.error().message);
  return std::pair(*dtype, first.whole);
}

std::vector<std::string> CheckpointReader::missing(const std::vector<std::string>& names) const {
  std::vector<std::string> out;
  for (const std::string& name : names)
    if (parts_of(name).empty()) out.push_back(name);
  return out;
}

Result<Tensor> CheckpointReader::read(const std::string& name, const std::optional<TensorSlice>& slice,
                                      const std::shared_ptr<Allocator>& allocator) const {
  TROUPE_ASSIGN(const auto described, find(name));
  const auto& [dtype, shape] = described;
  const auto found = parts_of(name);
  const auto in_tensor = [&](const Error& error) {
    return make_error(error.code, "tensor '{}': {}", name, error.message);
  };
  if (slice && slice->whole != shape)
    return in_tensor(invalid_argument("a slice of {} of a tensor of shape {}", slice->whole.str(), shape.str()));
  const TensorSlice wanted = slice ? *slice : TensorSlice::all(shape);
  if (wanted.part == shape && found.size() == 1 && !part(found[0]).slice) {
    auto out = sources_[found[0].source]->read(found[0].part, allocator);
    return out.ok() ? std::move(out) : in_tensor(out.error());
  }
  // Parts that have something of it, whose sizes are added before anything is read.
  std::vector<UsedPart> used;
  int64_t elements = 0;
  for (const Place& place : found) {
    const TensorSlice has = part(place).slice ? *part(place).slice : TensorSlice::all(shape);
    const int64_t common = has.intersection(wanted).part.elements();
    if (common == 0) continue;
    if (common > wanted.part.elements() - elements)
      return in_tensor(make_error(Code::kDataLoss, "two of its parts in {} overlap", path_));
    elements += common;
    used.push_back({place.source, place.part, has});
  }
  if (elements != wanted.part.elements())
    return in_tensor(make_error(Code::kDataLoss, "its parts in {} have {} of the {} elements of {}", path_, elements,
                                wanted.part.elements(), wanted.part.str()));
  for (const UsedPart& u : used)
    if (const Status checked = sources_[u.source]->check(u.part); !checked.ok()) return in_tensor(checked.error());
  if (any_overlap(used, wanted)) return in_tensor(make_error(Code::kDataLoss, "two of its parts in {} overlap", path_));
  TROUPE_ASSIGN(Tensor out, Tensor::make(dtype, wanted.part, allocator));
  for (const UsedPart& u : used) {
    auto value = sources_[u.source]->read(u.part, system_allocator());
    if (!value.ok()) return in_tensor(value.error());
    u.slice.copy(u.slice.intersection(wanted), *value, wanted, out);
  }
  return out;
}

bool can_hold(CheckpointKind kind, DType dtype) {
  switch (kind) {
    case CheckpointKind::kBundle: return dtype_of_number(static_cast<int>(dtype)).ok();
    case CheckpointKind::kSlices: return slice_checkpoints_hold(dtype);
    case CheckpointKind::kSafetensors: return safetensors_hold(dtype);
  }
  return false;
}

Status write_checkpoint(const FileAccess& access, CheckpointKind kind, const std::string& path,
                        std::span<const TensorToSave> tensors) {
  switch (kind) {
    case CheckpointKind::kBundle: return write_bundle(access, path, tensors);
    case CheckpointKind::kSlices: return write_slice_checkpoint(access, path, tensors);
    case CheckpointKind::kSafetensors: return write_safetensors_file(access, path, tensors);
  }
  return make_error(Code::kInternal, "no kind of checkpoint");
}

}  // namespace troupe
