// SPDX-License-Identifier: Apache-2.0
// The Checkpointer. Invariants, at every moment and whatever fails:
//  1. A name "checkpoint-<step>.safetensors" refers to a file that was complete and synced before it got the name.
//  2. `latest` names a file that had its name, durably, before; and it is never the one that is deleted.
//  3. Of the directory only the process that has its lock writes to it or removes from it. One whose lock is no longer
//     that of the directory, since somebody has moved it or made it again, does neither.
#include "troupe/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/join.h"
#include "base/log.h"
#include "io/safetensors.h"

namespace troupe {
namespace {

constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kPartial = ".partial";
constexpr const char* kLatest = "latest";
constexpr const char* kLock = "checkpoint.lock";

std::string name_of(int64_t step) { return fmt::format("{}{:012}{}", kPrefix, step, kSuffix); }

/// The step in a checkpoint's name, -1 when the name is none.
int64_t step_of(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix) || name.size() <= kPrefix.size() + kSuffix.size())
    return -1;
  const std::string_view digits = name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
  int64_t step = -1;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  return code == std::errc() && end == digits.data() + digits.size() && step >= 0 && name == name_of(step) ? step : -1;
}

bool is_partial(std::string_view name) {
  return name.ends_with(kPartial) && (name.starts_with(kPrefix) || name.starts_with(kLatest));
}

/// What `latest` says: the step, or what is wrong with it.
Result<int64_t> read_pointer(FileSystem& files, const std::string& path) {
  TROUPE_ASSIGN(const auto file, files.open(path));
  if (file->size() > 256) return make_error(Code::kDataLoss, "'{}' is damaged: {} bytes", path, file->size());
  std::string name(file->size(), '\0');
  TROUPE_RETURN_IF_ERROR(file->read(0, name.data(), name.size()));
  if (name.ends_with('\n')) name.pop_back();
  const int64_t step = step_of(name);
  if (step < 0) return make_error(Code::kDataLoss, "'{}' is damaged: it names no checkpoint", path);
  return step;
}

std::shared_ptr<FileSystem> or_posix(std::shared_ptr<FileSystem> files) {
  return files ? std::move(files) : make_posix_file_system();
}

/// What the directory says at one moment.
struct Look {
  Result<int64_t> pointer;
  std::vector<Checkpointer::Entry> entries;

  static Result<Look> take(const std::string& directory, const std::shared_ptr<FileSystem>& files) {
    auto pointer = read_pointer(*files, directory + "/" + kLatest);
    TROUPE_ASSIGN(auto entries, Checkpointer::read_list(directory, files));
    return Look{std::move(pointer), std::move(entries)};
  }
  bool names(int64_t step) const {
    return std::ranges::any_of(entries, [step](const auto& e) { return e.step == step; });
  }
  bool operator==(const Look& other) const {
    return pointer.ok() == other.pointer.ok() && (!pointer.ok() || *pointer == *other.pointer) &&
           std::ranges::equal(entries, other.entries, {}, &Checkpointer::Entry::step, &Checkpointer::Entry::step);
  }
};

/// Loads by what `look` says. Nothing where a file is missing and the directory has changed since.
Result<std::optional<Checkpointer::Loaded>> load_by(Look look, const std::string& directory,
                                                    const std::shared_ptr<FileSystem>& files) {
  const auto changed = [&]() -> Result<bool> {
    TROUPE_ASSIGN(const Look now, Look::take(directory, files));
    return !(now == look);
  };
  Checkpointer::Loaded loaded;
  const int64_t newest = look.pointer.ok() ? *look.pointer : INT64_MAX;
  if (!look.pointer.ok() && look.pointer.error().code == Code::kInvalidArgument) return look.pointer.error();
  // Who was killed within the first save has left a checkpoint, and no pointer to it yet.
  const bool is_first = !look.pointer.ok() && look.pointer.error().code == Code::kNotFound && look.entries.size() == 1;
  if (look.pointer.ok() ? !look.names(newest) : !look.entries.empty() && !is_first) {
    TROUPE_ASSIGN(const bool moved, changed());
    if (moved) return std::optional<Checkpointer::Loaded>();
    loaded.skipped.push_back(
        look.pointer.ok() ? fmt::format("'{}/{}', which '{}' names, is missing", directory, name_of(newest), kLatest)
                          : look.pointer.error().message);
  }
  std::vector<Checkpointer::Entry> entries = look.entries;
  // From the latest downwards; checkpoints beyond it come last: a run that was set back left them.
  std::ranges::sort(entries, [newest](const auto& a, const auto& b) {
    return std::pair(a.step <= newest, a.step) > std::pair(b.step <= newest, b.step);
  });
  for (const Checkpointer::Entry& entry : entries) {
    auto file = files->open(entry.path);
    if (!file.ok() && file.error().code == Code::kInvalidArgument) return std::move(file.error());
    if (!file.ok() && file.error().code == Code::kNotFound) {
      TROUPE_ASSIGN(const bool moved, changed());
      if (moved) return std::optional<Checkpointer::Loaded>();
    }
    auto decoded = file.ok() ? decode_safetensors(**file, entry.path, true) : Result<TensorFile>(file.error());
    if (decoded.ok() && decoded->step != entry.step)
      decoded = make_error(Code::kDataLoss, "'{}' holds step {}", entry.path, decoded->step);
    if (decoded.ok()) {
      loaded.tensors = std::move(decoded->tensors);
      loaded.metadata = std::move(decoded->metadata);
      loaded.step = entry.step;
      loaded.path = entry.path;
      return std::optional(std::move(loaded));
    }
    loaded.skipped.push_back(decoded.error().message);
  }
  if (loaded.skipped.empty()) return make_error(Code::kNotFound, "no checkpoint in '{}'", directory);
  return make_error(Code::kDataLoss, "no checkpoint of '{}' can be read: {}", directory, join(loaded.skipped, "; "));
}

}  // namespace

Result<Checkpointer> Checkpointer::open(std::string directory, int64_t keep_last_n, std::shared_ptr<FileSystem> files) {
  files = or_posix(std::move(files));
  TROUPE_RETURN_IF_ERROR(files->make_directories(directory));
  auto lock = files->lock(directory + "/" + kLock);
  if (!lock.ok())
    return make_error(lock.error().code, "the checkpoints in '{}' cannot be had for saving: {}", directory,
                      lock.error().message);
  Checkpointer out(std::move(directory), keep_last_n, std::move(files), std::move(*lock));
  TROUPE_RETURN_IF_ERROR(out.check_lock());
  TROUPE_RETURN_IF_ERROR(out.remove_temporaries());
  return out;
}

Status Checkpointer::check_lock() const {
  const Status there = lock_->check();
  if (there.ok()) return {};
  return make_error(there.error().code, "the checkpoints in '{}' are not this process's any more: {}", directory_,
                    there.error().message);
}

Status Checkpointer::remove_temporaries() {
  TROUPE_ASSIGN(const std::vector<std::string> names, files_->list(directory_));
  for (const std::string& name : names)
    if (is_partial(name)) TROUPE_RETURN_IF_ERROR(files_->remove(directory_ + "/" + name));
  return {};
}

Status Checkpointer::replace(const std::string& name, const std::vector<std::pair<const void*, size_t>>& pieces) {
  const std::string path = directory_ + "/" + name;
  const std::string temporary = path + std::string(kPartial);
  auto write = [&]() -> Status {
    TROUPE_ASSIGN(const auto file, files_->create(temporary));
    for (const auto& [data, bytes] : pieces) TROUPE_RETURN_IF_ERROR(file->append(data, bytes));
    TROUPE_RETURN_IF_ERROR(file->sync());
    TROUPE_RETURN_IF_ERROR(file->close());
    TROUPE_RETURN_IF_ERROR(check_lock());
    return files_->rename(temporary, path);
  };
  if (Status status = write(); !status.ok()) {
    if (check_lock().ok()) (void)files_->remove(temporary).ok();  // the first error is the one to report
    return status;
  }
  return files_->sync_directory(directory_);
}

Result<std::string> Checkpointer::save(const TensorMap& tensors, int64_t step, const Metadata& metadata) {
  if (step < 0) return invalid_argument("a checkpoint's step must be at least 0, got {}", step);
  TROUPE_ASSIGN(const EncodedTensors encoded, encode_safetensors(tensors, step, metadata));
  TROUPE_RETURN_IF_ERROR(check_lock());
  TROUPE_RETURN_IF_ERROR(remove_temporaries());
  const std::string name = name_of(step);
  std::vector<std::pair<const void*, size_t>> pieces = {{encoded.header.data(), encoded.header.size()}};
  pieces.insert(pieces.end(), encoded.data.begin(), encoded.data.end());
  TROUPE_RETURN_IF_ERROR(replace(name, pieces));
  const std::string pointer = name + "\n";
  TROUPE_RETURN_IF_ERROR(replace(kLatest, {{pointer.data(), pointer.size()}}));

  if (keep_ >= 1) {
    TROUPE_RETURN_IF_ERROR(check_lock());
    TROUPE_ASSIGN(std::vector<Entry> entries, list());
    std::ranges::sort(entries, {}, [step](const Entry& e) { return std::pair(e.step <= step, e.step); });
    for (size_t i = 0; i + static_cast<size_t>(keep_) < entries.size(); ++i)
      if (Status removed = files_->remove(entries[i].path); !removed.ok())  // what was asked for is done
        log_warning("old checkpoint not deleted: {}", removed.error().message);
  }
  return directory_ + "/" + name;
}

Result<Checkpointer::Loaded> Checkpointer::read_latest(const std::string& directory,
                                                       std::shared_ptr<FileSystem> files) {
  files = or_posix(std::move(files));
  // Where the owner saves and deletes meanwhile, the next look finds what it saved.
  constexpr int kLooks = 100;
  for (int n = 0; n < kLooks; ++n) {
    TROUPE_ASSIGN(Look look, Look::take(directory, files));
    TROUPE_ASSIGN(auto loaded, load_by(std::move(look), directory, files));
    if (!loaded) continue;
    for (const std::string& fault : loaded->skipped) log_warning("checkpoint passed over: {}", fault);
    if (!loaded->skipped.empty()) log_warning("falling back to checkpoint '{}'", loaded->path);
    return std::move(*loaded);
  }
  return make_error(Code::kFailedPrecondition, "'{}' changed {} times while its latest checkpoint was looked for",
                    directory, kLooks);
}

Result<std::vector<Checkpointer::Entry>> Checkpointer::read_list(const std::string& directory,
                                                                 std::shared_ptr<FileSystem> files) {
  files = or_posix(std::move(files));
  TROUPE_ASSIGN(const std::vector<std::string> names, files->list(directory));
  std::vector<Entry> entries;
  for (const std::string& name : names)
    if (const int64_t step = step_of(name); step >= 0) entries.push_back({step, directory + "/" + name});
  std::ranges::sort(entries, {}, &Entry::step);
  return entries;
}

}  // namespace troupe
