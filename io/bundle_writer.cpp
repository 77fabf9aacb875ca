// SPDX-License-Identifier: Apache-2.0
// Writing and merging bundles. Invariants, at every moment and whatever fails:
//  1. The index of a prefix is one that was whole and on the disk, and so were the data files that it names.
//  2. Data get a name that was free. Those of the index before go when its successor is on the disk.
// So where "-of-00001" is in use, data begin as "-of-00002". Once they are in place they get the usual name by a second
// name, a second index and the removal of the first name, each of which keeps to the above. Of several saves at once
// each does all that in its turn, since it names and removes by what it has seen in the folder.
#include <algorithm>
#include <filesystem>
#include <set>

#include "io/bundle_index.h"
#include "io/crc32c.h"
#include "io/replacing_file.h"
#include "io/slice_text.h"
#include "io/tensor_bundle.h"
#include "io/varint.h"

namespace troupe {
namespace {

/// Writes elements; their bytes in the file and masked check sum.
Result<std::pair<int64_t, uint32_t>> write_elements(WritableFile& file, const Tensor& value) {
  if (value.dtype() != DType::kString) {
    TROUPE_RETURN_IF_ERROR(file.append(value.raw(), value.bytes()));
    return std::pair(static_cast<int64_t>(value.bytes()), mask_crc(crc32c(value.raw(), value.bytes())));
  }
  std::string lengths;
  uint32_t sum = 0;
  for (const std::string& text : value.values<std::string>()) {
    put_varint(lengths, text.size());
    std::string word;
    put_word(word, static_cast<uint32_t>(text.size()));
    if (text.size() > UINT32_MAX) put_word(word, static_cast<uint32_t>(uint64_t{text.size()} >> 32));
    sum = crc32c(word.data(), word.size(), sum);
  }
  std::string word;
  put_word(word, mask_crc(sum));
  sum = crc32c(word.data(), word.size(), sum);
  lengths += word;
  TROUPE_RETURN_IF_ERROR(file.append(lengths.data(), lengths.size()));
  auto size = static_cast<int64_t>(lengths.size());
  for (const std::string& text : value.values<std::string>()) {
    TROUPE_RETURN_IF_ERROR(file.append(text.data(), text.size()));
    sum = crc32c(text.data(), text.size(), sum);
    size += static_cast<int64_t>(text.size());
  }
  return std::pair(size, mask_crc(sum));
}

/// Entries without places, by key; `keys` has those of `tensors`.
Result<BundleEntries> entries_for(std::span<const TensorToSave> tensors, std::vector<std::string>& keys) {
  BundleEntries entries;
  std::map<std::string_view, std::vector<const TensorSlice*>> parts;
  for (const TensorToSave& t : tensors) {
    if (t.name.empty()) return invalid_argument("a tensor without a name cannot be saved");
    if (t.dtype == DType::kResource || t.dtype == DType::kVariant || t.dtype == DType::kInvalid)
      return invalid_argument("tensor '{}' is {}{}: checkpoints cannot hold that dtype", t.name, to_string(t.dtype),
                              t.whole.str());
    proto::BundleEntry entry;
    entry.set_dtype(static_cast<int>(t.dtype));
    write_shape(t.whole, *entry.mutable_shape());
    std::string key = t.name;
    if (t.slice) {
      proto::SavedBox box;
      write_box(*t.slice, box);
      const auto at = entries.find(t.name);
      if (at != entries.end() && at->second.slices_size() > 0) {
        TROUPE_ASSIGN(const Shape before, read_shape(at->second.shape()));
        if (at->second.dtype() != entry.dtype() || before != t.whole)
          return invalid_argument("tensor '{}': a part of {} {} and one of {} {}", t.name,
                                  name_of_type(at->second.dtype()), before.str(), to_string(t.dtype), t.whole.str());
      }
      TROUPE_RETURN_IF_ERROR(add_part_entry(entries, t.name, entry, box));
      for (const TensorSlice* other : parts[t.name])
        if (t.slice->overlaps(*other)) return invalid_argument("tensor '{}': two of its parts overlap", t.name);
      parts[t.name].push_back(&*t.slice);
      key = key_of_part(t.name, box);
      entry.clear_shape();
      write_shape(t.slice->part, *entry.mutable_shape());
    }
    keys.push_back(key);
    if (!entries.emplace(key, std::move(entry)).second)
      return invalid_argument("tensor name '{}' is given twice", t.name);
  }
  return entries;
}

/// Data files of a prefix that nobody writes any more, but those of `shards` shards.
std::vector<std::string> former_data(FileSystem& files, const std::string& prefix, int64_t shards) {
  std::vector<std::string> out;
  const std::string folder = folder_of(prefix), stem = std::filesystem::path(prefix).filename().string();
  const auto names = files.list(folder);
  if (!names.ok()) return out;
  const std::string current = fmt::format("-of-{:05}", shards);
  for (const std::string& name : *names) {
    if (name.size() <= stem.size() || bundle_prefix(name) != stem || name == bundle_index(stem)) continue;
    const std::string path = prefix.substr(0, prefix.size() - stem.size()) + name;
    if (!name.ends_with(current) && !files.in_use(path)) out.push_back(path);
  }
  return out;
}

/// Gives data the names of as many shards as there are. What fails leaves them as they are, which is fine as well.
void use_usual_names(const FileAccess& access, const std::string& prefix, const BundleEntries& entries,
                     const std::vector<std::string>& data) {
  FileSystem& files = *access.files;
  const auto shards = static_cast<int64_t>(data.size());
  std::vector<std::string> usual;
  for (const std::string& path : data) {
    const std::string name = bundle_data(prefix, static_cast<int64_t>(usual.size()), shards);
    const auto linked = files.link_new(path, name);
    if (!linked.ok() || !*linked) break;
    usual.push_back(name);
  }
  const bool done = usual.size() == data.size() && files.sync_directory(folder_of(prefix)).ok() &&
                    replace_index(access, prefix, entries, shards).ok();
  for (const std::string& path : done ? data : usual) (void)files.remove(path).ok();
}

/// Puts the index of data that are in place there, and clears what it replaces. On an error the data go.
Status put_index(const FileAccess& access, const std::string& prefix, const BundleEntries& entries, int64_t shards,
                 const std::vector<std::string>& data) {
  FileSystem& files = *access.files;
  Status status = files.sync_directory(folder_of(prefix));
  // Without an index nobody knows whose data there are.
  std::vector<std::string> former;
  if (files.open(bundle_index(prefix)).ok()) former = former_data(files, prefix, shards);
  if (status.ok()) status = replace_index(access, prefix, entries, shards);
  if (!status.ok()) {
    for (const std::string& path : data) (void)files.remove(path).ok();  // the first error is the one to report
    return status;
  }
  for (const std::string& path : former) (void)files.remove(path).ok();  // what was asked for is done
  if (!data.empty() && shards != static_cast<int64_t>(data.size())) use_usual_names(access, prefix, entries, data);
  return {};
}

}  // namespace

Status write_bundle(const FileAccess& access, const std::string& prefix, std::span<const TensorToSave> tensors) {
  std::vector<std::string> keys;
  TROUPE_RETURN_IF_ERROR(may_touch(access.folders, bundle_index(prefix)));
  TROUPE_RETURN_IF_ERROR(may_touch(access.folders, bundle_data(prefix, 0, 1)));
  TROUPE_ASSIGN(BundleEntries entries, entries_for(tensors, keys));
  FileSystem& files = *access.files;
  TROUPE_RETURN_IF_ERROR(files.make_directories(folder_of(prefix)));
  const std::string beside = prefix + ".data";
  files.remove_temporaries(beside);
  TROUPE_ASSIGN(auto temporary, files.create_temporary(beside));
  auto& [name, file] = temporary;  // open to the end: nobody takes it for what a crash left
  int64_t shards = 1;
  std::unique_ptr<FileLock> turn;
  const auto write_data = [&, &file = file, &name = name]() -> Status {
    GatheringFile data(*file);
    int64_t offset = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      TROUPE_ASSIGN(const Tensor value, value_of(tensors[i]));
      auto written = write_elements(data, value);
      if (!written.ok())
        return make_error(written.error().code, "tensor '{}': {}", tensors[i].name, written.error().message);
      proto::BundleEntry& entry = entries[keys[i]];
      entry.set_offset(offset);
      entry.set_size(written->first);
      entry.set_crc32c(written->second);
      offset += written->first;
    }
    TROUPE_RETURN_IF_ERROR(data.sync());
    turn = files.take_turn(folder_of(prefix));
    for (bool placed = false; !placed; shards += placed ? 0 : 1) {
      TROUPE_ASSIGN(placed, files.rename_new(name, bundle_data(prefix, 0, shards)));
    }
    return {};
  };
  if (Status status = write_data(); !status.ok()) {
    (void)files.remove(name).ok();  // the first error is the one to report
    return status;
  }
  TROUPE_RETURN_IF_ERROR(put_index(access, prefix, entries, shards, {bundle_data(prefix, 0, shards)}));
  return file->close();
}

namespace {

/// What becomes one bundle.
struct Merged {
  BundleEntries entries;
  std::vector<std::pair<std::string, int>> shards;  // by prefix; their places are their new numbers
  std::vector<std::string> found;                   // prefixes
  std::map<std::string, int> shard_counts;

  Status add(const FileAccess& access, const std::string& prefix);
};

Status Merged::add(const FileAccess& access, const std::string& prefix) {
  TROUPE_ASSIGN(const BundleIndex index, BundleIndex::open(access, prefix));
  found.push_back(prefix);
  shard_counts[prefix] = index.shards();
  std::map<int, int> numbers;
  return index.for_each([&](std::string_view key, const proto::BundleEntry& entry) -> Status {
    const std::string name(key);
    if (entry.slices_size() > 0) {
      for (const auto& box : entry.slices()) TROUPE_RETURN_IF_ERROR(add_part_entry(entries, name, entry, box));
      return {};
    }
    if (entry.shard_id() < 0 || entry.shard_id() >= index.shards())
      return make_error(Code::kDataLoss, "'{}' is damaged: tensor '{}' is in shard {} of {}", bundle_index(prefix), key,
                        entry.shard_id(), index.shards());
    const auto [number, fresh] = numbers.try_emplace(entry.shard_id(), static_cast<int>(shards.size()));
    if (fresh) shards.emplace_back(prefix, entry.shard_id());
    const auto [at, added] = entries.emplace(name, entry);
    if (!added) return invalid_argument("{} of '{}' is in another file too", described_key(key), prefix);
    at->second.set_shard_id(number->second);
    return {};
  });
}

/// Gives a file another name as well, or copies it; false, and nothing done, where the name is taken.
Result<bool> name_again(FileSystem& files, const std::string& from, const std::string& to) {
  auto linked = files.link_new(from, to);
  if (linked.ok() || linked.error().code != Code::kUnimplemented) return linked;
  TROUPE_ASSIGN(const auto source, files.open(from));
  files.remove_temporaries(to);
  TROUPE_ASSIGN(auto temporary, files.create_temporary(to));
  auto& [name, file] = temporary;
  const auto copy = [&, &file = file, &name = name]() -> Result<bool> {
    std::string piece(1 << 20, '\0');
    for (uint64_t at = 0; at < source->size(); at += piece.size()) {
      piece.resize(std::min<uint64_t>(piece.size(), source->size() - at));
      TROUPE_RETURN_IF_ERROR(source->read(at, piece.data(), piece.size()));
      TROUPE_RETURN_IF_ERROR(file->append(piece.data(), piece.size()));
    }
    TROUPE_RETURN_IF_ERROR(file->sync());
    return files.rename_new(name, to);
  };
  auto done = copy();
  if (!done.ok() || !*done) (void)files.remove(name).ok();
  return done;
}

}  // namespace

Status merge_bundles(const FileAccess& access, std::span<const std::string> prefixes, const std::string& destination,
                     bool may_miss) {
  FileSystem& files = *access.files;
  TROUPE_RETURN_IF_ERROR(may_touch(access.folders, bundle_index(destination)));
  Merged merged;
  for (const std::string& prefix : prefixes) {
    const Status status = merged.add(access, prefix);
    const bool missing = !status.ok() && status.error().code == Code::kNotFound;
    if (!status.ok() && !(missing && may_miss)) return status;
    if (missing && &prefix == &prefixes.back() && merged.found.empty()) return status;
  }
  TROUPE_RETURN_IF_ERROR(files.make_directories(folder_of(destination)));
  const std::unique_ptr<FileLock> turn = files.take_turn(folder_of(destination));
  // Numbers of shards whose files are not there: nothing that is in use is written over.
  auto shards = static_cast<int64_t>(std::max<size_t>(merged.shards.size(), 1));
  std::vector<std::string> data;
  const auto remove_data = [&] {
    for (const std::string& path : data) (void)files.remove(path).ok();
    data.clear();
  };
  for (size_t i = 0; i < merged.shards.size();) {
    const auto& [prefix, shard] = merged.shards[i];
    const std::string from = bundle_data(prefix, shard, merged.shard_counts[prefix]),
                      to = bundle_data(destination, static_cast<int64_t>(i), shards);
    Status status = may_touch(access.folders, from);
    if (status.ok()) status = may_touch(access.folders, to);
    auto named = status.ok() ? name_again(files, from, to) : Result<bool>(status);
    if (!named.ok()) {
      remove_data();
      return std::move(named).failure();
    }
    if (*named) {
      data.push_back(to);
      ++i;
    } else {
      remove_data();
      ++shards;
      i = 0;
    }
  }
  TROUPE_RETURN_IF_ERROR(put_index(access, destination, merged.entries, shards, data));
  // The merged bundle is there, which is what counts; its data may have got their usual names.
  std::set<std::string> kept(data.begin(), data.end());
  for (size_t i = 0; i < data.size(); ++i)
    kept.insert(bundle_data(destination, static_cast<int64_t>(i), static_cast<int64_t>(data.size())));
  for (const std::string& prefix : merged.found) {
    std::error_code ignored;
    if (std::filesystem::equivalent(bundle_index(prefix), bundle_index(destination), ignored)) continue;
    (void)files.remove(bundle_index(prefix)).ok();
    for (int64_t shard = 0; shard < merged.shard_counts[prefix] && shard < 100'000; ++shard)
      if (const std::string path = bundle_data(prefix, shard, merged.shard_counts[prefix]); !kept.contains(path))
        (void)files.remove(path).ok();
  }
  return {};
}

}  // namespace troupe
