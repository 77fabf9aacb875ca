// SPDX-License-Identifier: Apache-2.0
// Which steps a snapshot waits for.
#include "containers/cuts.h"

#include <algorithm>

namespace troupe {

Cuts::~Cuts() {
  for (Cut& cut : cuts_) cut.done(make_error(Code::kFailedPrecondition, "container '{}' was reset", container_.name()));
}

void Cuts::snapshot(Done done, const std::vector<int64_t>& also) {
  Cut cut{container_, {}, std::move(done), {}, {}};
  for (const int64_t step : also)
    if (steps_.tell_when_ended(step)) cut.steps.insert(step);
  std::erase_if(writers_, [&](int64_t step) {
    if (!steps_.tell_when_ended(step)) return true;
    cut.steps.insert(step);
    return false;
  });
  last_writer_ = -1;
  if (cut.steps.empty()) finish(cut);
  else cuts_.push_back(std::move(cut));
}

void Cuts::step_ended(int64_t step) {
  writers_.erase(step);
  if (last_writer_ == step) last_writer_ = -1;
  if (with_temporaries_.erase(step) > 0) container_.drop_temporaries(step);
  std::list<Cut> whole;
  for (auto at = cuts_.begin(); at != cuts_.end();) {
    const auto next = std::next(at);
    if (at->steps.erase(step) > 0 && at->steps.empty()) whole.splice(whole.end(), cuts_, at);
    at = next;
  }
  for (Cut& cut : whole) finish(cut);
}

void Cuts::finish(Cut& cut) {
  if (cut.torn.ok()) cut.done(cut.copy.snapshot());
  else cut.done(std::move(cut.torn.error()));
}

void Cuts::note(int64_t step) {
  last_writer_ = step;
  writers_.insert(step);
  if (writers_.size() < sweep_at_) return;
  std::erase_if(writers_, [&](int64_t writer) { return writer != step && !steps_.is_running(writer); });
  sweep_at_ = std::max<size_t>(64, 2 * writers_.size());
}

void Cuts::watch_temporaries(int64_t step) {
  if (!with_temporaries_.insert(step).second) return;
  if (steps_.tell_when_ended(step)) return;
  with_temporaries_.erase(step);
  container_.drop_temporaries(step);
}

}  // namespace troupe
