// SPDX-License-Identifier: Apache-2.0
// The index of a bundle (io/tensor_bundle.h): names of files, the header, the entries.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "io/saved_parts.h"
#include "io/saved_tensors.pb.h"
#include "io/sorted_table.h"

namespace troupe {

/// An index that is read. One thread at a time.
class BundleIndex {
 public:
  /// Errors: as open_bundle().
  static Result<BundleIndex> open(const FileAccess& access, const std::string& prefix);
  int shards() const { return shards_; }
  /// Whether it is still that of the prefix: no save has put another in its place.
  bool in_place() const { return table_->in_place(); }
  /// Calls `visit` with each entry in the order of keys until it fails.
  Status for_each(const std::function<Status(std::string_view key, const proto::BundleEntry& entry)>& visit) const;

 private:
  BundleIndex(SortedTable table, int shards)
      : table_(std::make_unique<SortedTable>(std::move(table))), shards_(shards) {}
  std::unique_ptr<SortedTable> table_;
  int shards_;
};

using BundleEntries = std::map<std::string, proto::BundleEntry>;

/// Adds `box` to the parts of the tensor `name`, whose type and shape must be those of its other parts. Errors:
/// kInvalidArgument where they are not, and where `name` is there whole.
Status add_part_entry(BundleEntries& entries, const std::string& name, const proto::BundleEntry& whole,
                      const proto::SavedBox& box);

/// Writes an index beside its place and moves it there. Errors: those of the system; then nothing has changed.
Status replace_index(const FileAccess& access, const std::string& prefix, const BundleEntries& entries, int64_t shards);

}  // namespace troupe
