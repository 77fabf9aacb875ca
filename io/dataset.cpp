// SPDX-License-Identifier: Apache-2.0
// Dataset's functions and the iterator resource.
#include "troupe/dataset.h"

#include <algorithm>
#include <deque>

#include "io/dataset_stages.h"

namespace troupe {
namespace {

/// `input` followed by a stage, with its prefetch depth.
Dataset then(const Dataset& from, StagePtr stage) { return Dataset(std::move(stage)).prefetch(from.prefetch_depth()); }

}  // namespace

Result<Dataset> Dataset::from_tensors(Element components) {
  if (components.empty()) return invalid_argument("a dataset of no tensors");
  for (size_t i = 0; i < components.size(); ++i) {
    const Tensor& t = components[i];
    if (!t.defined() || t.rank() == 0)
      return invalid_argument("component {} of a dataset is {}, which has no rows", i,
                              t.defined() ? "a scalar" : "undefined");
    if (t.dim(0) != components[0].dim(0))
      return invalid_argument("components 0 and {} of a dataset have {} and {} rows", i, components[0].dim(0),
                              t.dim(0));
  }
  return Dataset(make_rows_stage(std::move(components)));
}

Result<Dataset> Dataset::from_text_lines(std::vector<std::string> files) {
  return Dataset(make_lines_stage(std::move(files)));
}

Result<Dataset> Dataset::from_records(std::vector<std::string> files) {
  return Dataset(make_records_stage(std::move(files)));
}

Dataset Dataset::map(MapFn fn, std::vector<DType> dtypes, std::vector<PartialShape> shapes) const {
  return then(*this, make_map_stage(stage_, std::move(fn), std::move(dtypes), std::move(shapes)));
}

Dataset Dataset::batch(int64_t size, bool drop_remainder) const {
  return then(*this, make_batch_stage(stage_, size, drop_remainder));
}

Dataset Dataset::shuffle(int64_t buffer, uint64_t seed) const {
  return then(*this, make_reorder_stage(stage_, {Reorder::Kind::kShuffle, buffer, -1, 1, seed}));
}

Dataset Dataset::repeat(int64_t count) const {
  return then(*this, make_reorder_stage(stage_, {Reorder::Kind::kRepeat, count}));
}

Dataset Dataset::take(int64_t count) const {
  return then(*this, make_reorder_stage(stage_, {Reorder::Kind::kRange, 0, count}));
}

Dataset Dataset::skip(int64_t count) const {
  return then(*this, make_reorder_stage(stage_, {Reorder::Kind::kRange, count}));
}

Dataset Dataset::shard(int64_t count, int64_t index) const {
  return then(*this, make_reorder_stage(stage_, {Reorder::Kind::kShard, index, -1, count}));
}

Dataset Dataset::prefetch(int64_t elements) const {
  Dataset out = *this;
  out.prefetch_ = std::max<int64_t>(elements, 0);
  return out;
}

struct IteratorResource::State {
  using Answer = Result<std::vector<Tensor>>;
  explicit State(Dataset d) : dataset(std::move(d)) {}

  Dataset dataset;
  std::unique_ptr<DatasetIterator> iterator;  // made by the first work()
  bool ended = false;
  std::deque<Answer> ready;   // produced ahead
  std::deque<Reply> waiting;  // asked for; never both

  Answer end() const { return make_error(Code::kOutOfRange, "end of the dataset"); }

  /// Produces one answer.
  Answer produce() {
    if (!iterator) {
      auto made = dataset.iterate();
      if (!made.ok()) {
        ended = true;  // restart() tries again
        return std::move(made.error());
      }
      iterator = std::move(*made);
    }
    Result<std::optional<Element>> element = iterator->next();
    if (!element.ok()) return std::move(element.error());
    if (*element) return std::move(**element);
    ended = true;
    return end();
  }
};

IteratorResource::IteratorResource(Dataset dataset) : state_(std::make_unique<State>(std::move(dataset))) {}
IteratorResource::~IteratorResource() = default;

void IteratorResource::get_next(Reply reply) {
  if (!state_->ready.empty()) {
    State::Answer answer = std::move(state_->ready.front());
    state_->ready.pop_front();
    reply(std::move(answer));
  } else if (state_->ended) {
    reply(state_->end());
  } else {
    state_->waiting.push_back(std::move(reply));
  }
}

void IteratorResource::cancel(uint64_t requester, int64_t step) {
  std::deque<Reply> kept;
  std::vector<Reply> cancelled;
  for (Reply& reply : state_->waiting) {
    const bool hit = reply.tag().requester == requester && reply.tag().step == step;
    if (hit) cancelled.push_back(std::move(reply));
    else kept.push_back(std::move(reply));
  }
  state_->waiting = std::move(kept);
  for (Reply& reply : cancelled) reply(make_error(Code::kCancelled, "step {} was cancelled", step));
}

void IteratorResource::restart() {
  state_->iterator.reset();
  state_->ready.clear();
  state_->ended = false;
}

bool IteratorResource::wants_work() const {
  return !state_->ended &&
         (!state_->waiting.empty() || static_cast<int64_t>(state_->ready.size()) < state_->dataset.prefetch_depth());
}

void IteratorResource::work() {
  if (!wants_work()) return;
  State::Answer answer = state_->produce();
  if (state_->waiting.empty()) {
    state_->ready.push_back(std::move(answer));
    return;
  }
  Reply reply = std::move(state_->waiting.front());
  state_->waiting.pop_front();
  reply(std::move(answer));
  while (state_->ended && !state_->waiting.empty()) {
    reply = std::move(state_->waiting.front());
    state_->waiting.pop_front();
    reply(state_->end());
  }
}

}  // namespace troupe
