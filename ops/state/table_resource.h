// SPDX-License-Identifier: Apache-2.0
// TableResource: a lookup table at its host, which may also be filled from what waits. Implemented in
// ops/state/table_resource.cpp.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>

#include "containers/table.h"
#include "devices/hosted_resource.h"

namespace troupe {

/// A passive core (see Resource): its host calls it, one call at a time. While entries are read elsewhere the table
/// answers as before; then it is filled between two requests. Nobody waits for the reader: a step that ends meanwhile
/// leaves the table as it is.
class TableResource final : public HostedResource {
 public:
  using Entries = std::pair<Tensor, Tensor>;  // keys and values
  /// Called by another thread, where it may wait as long as it likes. It owns what it touches.
  using Read = std::function<Result<Entries>()>;

  /// Errors: those of Table::make.
  static Result<std::unique_ptr<Resource>> make(TableOptions options);

  Table& table() { return *table_; }
  /// Has `read` called and fills the table with what it gives. Reply: no outputs. Errors: those of `read` and of
  /// Table::fill, and then nothing is changed.
  void fill_from(Read read, Reply reply);

  void cancel(uint64_t requester, int64_t step) override;
  void answered(uint64_t question, Result<std::vector<Tensor>> outputs) override;

 private:
  /// What a job leaves for its resource.
  using Found = std::shared_ptr<std::optional<Result<Entries>>>;
  struct Fill {
    Found found;
    Reply reply;
  };
  explicit TableResource(std::unique_ptr<Table> table) : table_(std::move(table)) {}

  const std::unique_ptr<Table> table_;
  std::unordered_map<uint64_t, Fill> fills_;  // under way, by question
};

}  // namespace troupe
