// SPDX-License-Identifier: Apache-2.0
// The Checkpointer. Invariants, at every moment and whatever fails:
//  1. A name "checkpoint-<step>.safetensors" refers to a file that was complete and synced before it got the name.
//  2. `latest` names a file that had its name, durably, before; and it is never the one that is deleted.
#include "troupe/checkpoint.h"
#include "base/join.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>

#include "io/safetensors.h"

namespace troupe {
namespace {

constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kSuffix = ".safetensors";
constexpr std::string_view kTemporary = ".partial";
constexpr const char* kLatest = "latest";

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

bool is_temporary(std::string_view name) {
  return name.ends_with(kTemporary) && (name.starts_with(kPrefix) || name.starts_with(kLatest));
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

}  // namespace

Result<Checkpointer> Checkpointer::open(std::string directory, int64_t keep_last_n, std::shared_ptr<FileSystem> files) {
  if (!files) files = make_posix_file_system();
  TROUPE_RETURN_IF_ERROR(files->make_directories(directory));
  TROUPE_ASSIGN(const std::vector<std::string> names, files->list(directory));
  for (const std::string& name : names)
    if (is_temporary(name)) TROUPE_RETURN_IF_ERROR(files->remove(directory + "/" + name));
  return Checkpointer(std::move(directory), keep_last_n, std::move(files));
}

Status Checkpointer::replace(const std::string& name, const std::vector<std::pair<const void*, size_t>>& pieces) {
  const std::string path = directory_ + "/" + name;
  const std::string temporary = path + std::string(kTemporary);
  auto write = [&]() -> Status {
    TROUPE_ASSIGN(const auto file, files_->create(temporary));
    for (const auto& [data, bytes] : pieces) TROUPE_RETURN_IF_ERROR(file->append(data, bytes));
    TROUPE_RETURN_IF_ERROR(file->sync());
    TROUPE_RETURN_IF_ERROR(file->close());
    return files_->rename(temporary, path);
  };
  if (Status status = write(); !status.ok()) {
    (void)files_->remove(temporary).ok();  // the first error is the one to report
    return status;
  }
  return files_->sync_directory(directory_);
}

Result<std::string> Checkpointer::save(const TensorMap& tensors, int64_t step) {
  if (step < 0) return invalid_argument("a checkpoint of step {}", step);
  TROUPE_ASSIGN(const EncodedTensors encoded, encode_safetensors(tensors, step));
  const std::string name = name_of(step);
  std::vector<std::pair<const void*, size_t>> pieces = {{encoded.header.data(), encoded.header.size()}};
  pieces.insert(pieces.end(), encoded.data.begin(), encoded.data.end());
  TROUPE_RETURN_IF_ERROR(replace(name, pieces));
  const std::string pointer = name + "\n";
  TROUPE_RETURN_IF_ERROR(replace(kLatest, {{pointer.data(), pointer.size()}}));

  if (keep_ >= 1) {
    TROUPE_ASSIGN(std::vector<Entry> entries, list());
    std::ranges::sort(entries, {}, [step](const Entry& e) { return std::pair(e.step <= step, e.step); });
    for (size_t i = 0; i + static_cast<size_t>(keep_) < entries.size(); ++i)
      if (Status removed = files_->remove(entries[i].path); !removed.ok())  // what was asked for is done
        spdlog::warn("old checkpoint not deleted: {}", removed.error().message);
  }
  return directory_ + "/" + name;
}

Result<Checkpointer::Loaded> Checkpointer::load_latest() const {
  TROUPE_ASSIGN(std::vector<Entry> entries, list());
  Loaded loaded;
  auto skip = [&loaded](const Error& error) {
    spdlog::warn("checkpoint passed over: {}", error.message);
    loaded.skipped.push_back(error.message);
  };
  int64_t newest = INT64_MAX;
  auto pointer = read_pointer(*files_, directory_ + "/" + kLatest);
  if (pointer.ok()) {
    newest = *pointer;
    if (std::ranges::none_of(entries, [newest](const Entry& e) { return e.step == newest; }))
      skip(make_error(Code::kNotFound, "'{}/{}', which '{}' names, is missing", directory_, name_of(newest), kLatest));
  } else if (!entries.empty()) {
    skip(pointer.error());
  }
  // From the latest downwards; checkpoints beyond it come last: a run that was set back left them.
  std::ranges::sort(entries, [newest](const Entry& a, const Entry& b) {
    return std::pair(a.step <= newest, a.step) > std::pair(b.step <= newest, b.step);
  });
  for (const Entry& entry : entries) {
    auto file = files_->open(entry.path);
    auto decoded = file.ok() ? decode_safetensors(**file, entry.path, true) : Result<TensorFile>(file.error());
    if (decoded.ok() && decoded->step != entry.step)
      decoded = make_error(Code::kDataLoss, "'{}' holds step {}", entry.path, decoded->step);
    if (decoded.ok()) {
      loaded.tensors = std::move(decoded->tensors);
      loaded.step = entry.step;
      loaded.path = entry.path;
      if (!loaded.skipped.empty()) spdlog::warn("falling back to checkpoint '{}'", entry.path);
      return loaded;
    }
    skip(decoded.error());
  }
  if (loaded.skipped.empty()) return make_error(Code::kNotFound, "no checkpoint in '{}'", directory_);
  return make_error(Code::kDataLoss, "no checkpoint of '{}' can be read: {}", directory_, join(loaded.skipped, "; "));
}

Result<std::vector<Checkpointer::Entry>> Checkpointer::list() const {
  TROUPE_ASSIGN(const std::vector<std::string> names, files_->list(directory_));
  std::vector<Entry> entries;
  for (const std::string& name : names)
    if (const int64_t step = step_of(name); step >= 0) entries.push_back({step, directory_ + "/" + name});
  std::ranges::sort(entries, {}, &Entry::step);
  return entries;
}

}  // namespace troupe
