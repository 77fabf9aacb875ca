// SPDX-License-Identifier: Apache-2.0
// What a staging area holds, and who waits for it.
#include "queues/staging_area.h"

#include <algorithm>

#include "troupe/attr.h"

namespace troupe {

Result<std::unique_ptr<Resource>> StagingArea::make(StagingOptions options) {
  for (const auto& [what, bound] : {std::pair{"capacity", options.capacity}, {"memory_limit", options.memory_limit}})
    if (bound < 0)
      return invalid_argument("staging area '{}': {} must be at least 0, got {}", options.name, what, bound);
  return std::unique_ptr<Resource>(new StagingArea(std::move(options)));
}

void StagingArea::put(QueueElement element, Reply reply) {
  int64_t bytes = 0;
  std::vector<DType> dtypes;
  for (const Tensor& t : element) {
    dtypes.push_back(t.dtype());
    bytes += static_cast<int64_t>(t.bytes());
  }
  if (!options_.dtypes.empty() && dtypes != options_.dtypes)
    return reply(invalid_argument("staging area '{}' holds {}, the element has {}", options_.name,
                                  to_string(AttrValue(options_.dtypes)), to_string(AttrValue(dtypes))));
  if (options_.memory_limit > 0 && bytes > options_.memory_limit)
    return reply(make_error(Code::kResourceExhausted,
                            "staging area '{}': an element of {} bytes is more than its memory_limit, {}",
                            options_.name, bytes, options_.memory_limit));
  puts_.push_back({std::move(reply), std::move(element), bytes});
  settle();
}

void StagingArea::get(Reply reply) {
  gets_.push_back(std::move(reply));
  settle();
}

void StagingArea::peek(int64_t index, Reply reply) {
  if (index < 0) return reply(invalid_argument("index must be at least 0, got {}", index));
  peeks_.push_back({std::move(reply), index});
  settle();
}

void StagingArea::clear() {
  elements_.clear();
  bytes_ = 0;
  settle();
}

void StagingArea::cancel(uint64_t requester, int64_t step) {
  const auto drop = [&](auto& waiting, auto&& reply_of) {
    std::erase_if(waiting, [&](auto& w) {
      Reply& reply = reply_of(w);
      if (reply.tag().requester != requester || reply.tag().step != step) return false;
      answers_.push_back(
          {std::move(reply),
           make_error(Code::kCancelled, "waiting for the staging area '{}' was cancelled", options_.name)});
      return true;
    });
  };
  drop(puts_, [](Put& put) -> Reply& { return put.reply; });
  drop(gets_, [](Reply& reply) -> Reply& { return reply; });
  drop(peeks_, [](Peek& peek) -> Reply& { return peek.reply; });
  settle();
}

bool StagingArea::has_room(int64_t bytes) const {
  return (options_.capacity == 0 || size() < options_.capacity) &&
         (options_.memory_limit == 0 || bytes_ + bytes <= options_.memory_limit);
}

void StagingArea::settle() {
  for (bool progress = true; progress;) {
    progress = false;
    for (; !puts_.empty() && has_room(puts_.front().bytes); puts_.pop_front(), progress = true) {
      Put& put = puts_.front();
      bytes_ += put.bytes;
      elements_.emplace_back(std::move(put.element), put.bytes);
      answers_.push_back({std::move(put.reply), std::vector<Tensor>()});
    }
    std::erase_if(peeks_, [&](Peek& peek) {
      if (peek.index >= size()) return false;
      answers_.push_back({std::move(peek.reply), elements_[static_cast<size_t>(peek.index)].first});
      return true;
    });
    for (; !gets_.empty() && !elements_.empty(); gets_.pop_front(), elements_.pop_front(), progress = true) {
      bytes_ -= elements_.front().second;
      answers_.push_back({std::move(gets_.front()), std::move(elements_.front().first)});
    }
  }
  for (Answer& a : std::exchange(answers_, {})) a.reply(std::move(a.outputs));
}

}  // namespace troupe
