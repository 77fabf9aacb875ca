// SPDX-License-Identifier: Apache-2.0
#include "queues/event_count.h"

#include <iterator>
#include <vector>

namespace troupe {

void EventCount::await(int64_t count, Reply reply) {
  if (count <= count_) return reply(std::vector<Tensor>());
  waiting_.emplace(count, std::move(reply));
}

void EventCount::advance() {
  ++count_;
  while (!waiting_.empty() && waiting_.begin()->first <= count_) {
    Reply reply = std::move(waiting_.extract(waiting_.begin()).mapped());
    reply(std::vector<Tensor>());
  }
}

void EventCount::cancel(uint64_t requester, int64_t step) {
  std::vector<Reply> cancelled;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const RequestTag& tag = at->second.tag();
    const auto next = std::next(at);
    if (tag.requester == requester && tag.step == step) cancelled.push_back(std::move(waiting_.extract(at).mapped()));
    at = next;
  }
  for (Reply& reply : cancelled) reply(make_error(Code::kCancelled, "waiting for an event was cancelled"));
}

}  // namespace troupe
