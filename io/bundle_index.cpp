// SPDX-License-Identifier: Apache-2.0
#include "io/bundle_index.h"

#include <filesystem>

#include "io/damage.h"
#include "io/replacing_file.h"
#include "io/tensor_bundle.h"

namespace troupe {
namespace {

constexpr int kBundleVersion = 1;

}  // namespace

std::string bundle_index(const std::string& prefix) { return prefix + ".index"; }

std::string bundle_data(const std::string& prefix, int64_t shard, int64_t shards) {
  return fmt::format("{}.data-{:05}-of-{:05}", prefix, shard, shards);
}

std::string bundle_prefix(const std::string& path) {
  constexpr std::string_view kIndex = ".index", kData = ".data-";
  if (path.ends_with(kIndex)) return path.substr(0, path.size() - kIndex.size());
  const size_t at = path.rfind(kData);
  if (at == path.npos) return "";
  // Two numbers of five digits or more.
  std::string_view rest = std::string_view(path).substr(at + kData.size());
  for (const std::string_view behind : {"-of-", ""}) {
    const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
    if (digits < 5 || !rest.substr(digits).starts_with(behind)) return "";
    rest.remove_prefix(digits + behind.size());
  }
  return rest.empty() ? path.substr(0, at) : "";
}

Result<BundleIndex> BundleIndex::open(const FileAccess& access, const std::string& prefix) {
  const std::string path = bundle_index(prefix);
  TROUPE_ASSIGN(auto file, access.open(path));
  TROUPE_ASSIGN(SortedTable table, SortedTable::open(std::move(file), path));
  TROUPE_ASSIGN(const auto text, table.find(""));
  proto::BundleHeader header;
  if (!text || text->size() > INT32_MAX || !header.ParseFromArray(text->data(), static_cast<int>(text->size())) ||
      header.num_shards() < 0)
    return make_error(Code::kDataLoss, "'{}' is damaged: it has no header of a checkpoint (V2)", path);
  if (header.endianness() != 0)
    return make_error(Code::kUnimplemented, "'{}' was written by a big-endian machine, which is not supported", path);
  if (header.version().min_consumer() > kBundleVersion)
    return make_error(Code::kUnimplemented, "'{}' is of version {} of its format, of which {} is known", path,
                      header.version().min_consumer(), kBundleVersion);
  return BundleIndex(std::move(table), header.num_shards());
}

Status BundleIndex::for_each(
    const std::function<Status(std::string_view key, const proto::BundleEntry& entry)>& visit) const {
  return table_->for_each([&](std::string_view key, std::string_view value) -> Status {
    if (key.empty()) return {};
    proto::BundleEntry entry;
    if (value.size() > INT32_MAX || !entry.ParseFromArray(value.data(), static_cast<int>(value.size())))
      return make_error(Code::kDataLoss, "'{}' is damaged: what it says of '{}' cannot be read", table_->path(), key);
    return visit(key, entry);
  });
}

Status add_part_entry(BundleEntries& entries, const std::string& name, const proto::BundleEntry& whole,
                      const proto::SavedBox& box) {
  auto [at, fresh] = entries.try_emplace(name);
  proto::BundleEntry& entry = at->second;
  if (fresh) {
    entry.set_dtype(whole.dtype());
    *entry.mutable_shape() = whole.shape();
  } else if (entry.slices_size() == 0) {
    return invalid_argument("tensor name '{}' is given twice, whole and in parts", name);
  } else if (entry.dtype() != whole.dtype() || entry.shape().SerializeAsString() != whole.shape().SerializeAsString()) {
    return invalid_argument("tensor '{}' has parts of different types or shapes", name);
  }
  *entry.add_slices() = box;
  return {};
}

Status replace_index(const FileAccess& access, const std::string& prefix, const BundleEntries& entries,
                     int64_t shards) {
  return replace_file(*access.files, bundle_index(prefix), [&](WritableFile& file) -> Status {
    SortedTableWriter table(file);
    proto::BundleHeader header;
    header.set_num_shards(static_cast<int32_t>(shards));
    header.mutable_version()->set_producer(kBundleVersion);
    TROUPE_RETURN_IF_ERROR(table.add("", header.SerializeAsString()));
    for (const auto& [key, entry] : entries) TROUPE_RETURN_IF_ERROR(table.add(key, entry.SerializeAsString()));
    return table.finish();
  });
}

}  // namespace troupe
