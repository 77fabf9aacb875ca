// SPDX-License-Identifier: Apache-2.0
// Drawing from a random-shuffle queue.
#include "queues/random_shuffle_queue.h"

namespace troupe {

Result<std::unique_ptr<Resource>> RandomShuffleQueue::make(QueueOptions options, int64_t min_after_dequeue,
                                                           uint64_t seed, uint64_t seed2) {
  TROUPE_RETURN_IF_ERROR(check(options));
  if (min_after_dequeue < 0 || (options.capacity >= 0 && min_after_dequeue >= options.capacity))
    return invalid_argument("queue '{}' has min_after_dequeue {} with capacity {}", options.name, min_after_dequeue,
                            options.capacity);
  // An odd factor spreads the two seeds so that (a, b) and (b, a) differ.
  return std::unique_ptr<Resource>(
      new RandomShuffleQueue(std::move(options), min_after_dequeue, seed * 0x9e3779b97f4a7c15 + seed2));
}

QueueElement RandomShuffleQueue::pop() {
  // The high half of a product maps 64 random bits to [0, size) without a division.
  const auto at = static_cast<size_t>((static_cast<unsigned __int128>(random_()) * store_.size()) >> 64);
  std::swap(store_[at], store_.back());
  QueueElement element = std::move(store_.back());
  store_.pop_back();
  return element;
}

}  // namespace troupe
