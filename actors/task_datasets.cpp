// SPDX-License-Identifier: Apache-2.0
#include "actors/task_datasets.h"

#include "actors/messages.h"
#include "base/log.h"
#include "ops/input/iterator_resource.h"
#include "troupe/guarded.h"

namespace troupe {

Status TaskDatasets::begin() {
  for (const auto& [name, dataset] : datasets_) {
    Status made = guarded([&, &name = name, &dataset = dataset] {
      // What is read ahead of a client would be what files had when the last one went. A queue needs its reader though.
      const auto begin = dataset.repeatable() ? IteratorResource::Begin::kWhenAsked : IteratorResource::Begin::kAtOnce;
      return directory_->add(iterator_key(name), std::make_unique<IteratorResource>(dataset, begin), "");
    });
    if (!made.ok()) {
      made.error().message = fmt::format("dataset '{}': {}", name, made.error().message);
      return made;
    }
  }
  return {};
}

void TaskDatasets::came(uint64_t visit) {
  const std::lock_guard guard(mutex_);
  if (visit <= visit_) return;
  if (used_) begin_anew("another client has come");
  visit_ = visit;
  used_ = true;
}

void TaskDatasets::went(uint64_t visit) {
  const std::lock_guard guard(mutex_);
  if (visit != visit_ || !used_) return;
  begin_anew("its client has gone");
  used_ = false;
}

void TaskDatasets::reset() {
  const std::lock_guard guard(mutex_);
  begin_anew(why_reset(""));
}

void TaskDatasets::begin_anew(const std::string& why) {
  for (const auto& [name, dataset] : datasets_)
    if (const caf::actor host = directory_->remove(iterator_key(name)))
      caf::anon_send(host, CloseResource{fmt::format("dataset '{}' begins anew: {}", name, why)});
  if (const Status made = begin(); !made.ok() && made.error().code != Code::kCancelled)
    log_error("{}", made.error().message);
}

}  // namespace troupe
