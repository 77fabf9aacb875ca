// SPDX-License-Identifier: Apache-2.0
// Drawing from a random-shuffle queue.
#include "queues/random_shuffle_queue.h"

namespace troupe {

Result<std::unique_ptr<Resource>> RandomShuffleQueue::make(QueueOptions options, int64_t min_after_dequeue,
                                                           std::function<uint32_t()> draw) {
  TROUPE_RETURN_IF_ERROR(check(options));
  if (min_after_dequeue < 0 || (options.capacity >= 0 && min_after_dequeue >= options.capacity))
    return invalid_argument("queue '{}' has min_after_dequeue {} with capacity {}", options.name, min_after_dequeue,
                            options.capacity);
  return std::unique_ptr<Resource>(new RandomShuffleQueue(std::move(options), min_after_dequeue, std::move(draw)));
}

QueueElement RandomShuffleQueue::pop() {
  const size_t at = draw_() % store_.size();
  std::swap(store_[at], store_.back());
  QueueElement element = std::move(store_.back());
  store_.pop_back();
  return element;
}

}  // namespace troupe
