// SPDX-License-Identifier: Apache-2.0
// Fills that wait for their entries.
#include "ops/state/table_resource.h"

#include "troupe/guarded.h"

namespace troupe {

Result<std::unique_ptr<Resource>> TableResource::make(TableOptions options) {
  TROUPE_ASSIGN(std::unique_ptr<Table> table, Table::make(std::move(options)));
  return std::unique_ptr<Resource>(new TableResource(std::move(table)));
}

void TableResource::fill_from(Read read, Reply reply) {
  const Found found = std::make_shared<Found::element_type>();
  const uint64_t question = host().run_blocking([found, read = std::move(read)] { *found = read(); });
  fills_.emplace(question, Fill{found, std::move(reply)});
}

void TableResource::cancel(uint64_t requester, int64_t step) {
  std::erase_if(fills_, [&](const auto& fill) {  // a reply that is dropped says that it was cancelled
    const RequestTag& tag = fill.second.reply.tag();
    return tag.requester == requester && tag.step == step;
  });
}

void TableResource::answered(uint64_t question, Result<std::vector<Tensor>> outputs) {
  auto fill = fills_.extract(question);
  if (!fill) return;                 // its step has ended
  Status status = outputs.status();  // of the job: it may not have run, or have thrown
  if (status.ok())
    status = guarded([&]() -> Status {
      TROUPE_ASSIGN(const Entries entries, std::move(**fill.mapped().found));
      return table_->fill(entries.first, entries.second);
    });
  if (status.ok()) fill.mapped().reply(std::vector<Tensor>());
  else fill.mapped().reply(std::move(status.error()));
}

}  // namespace troupe
