// SPDX-License-Identifier: Apache-2.0
// The ordered store of a priority queue.
#include "queues/priority_queue.h"

namespace troupe {

Result<std::unique_ptr<Resource>> PriorityQueue::make_called(const char* kind, QueueOptions options) {
  if (options.shapes.size() != options.dtypes.size())
    return invalid_argument("{} '{}' has {} component types but {} shapes", kind, options.name, options.dtypes.size(),
                            options.shapes.size());
  options.dtypes.insert(options.dtypes.begin(), DType::kInt64);
  options.shapes.insert(options.shapes.begin(), PartialShape::scalar());
  TROUPE_RETURN_IF_ERROR(check(options));
  return std::unique_ptr<Resource>(new PriorityQueue(std::move(options), kind));
}

void PriorityQueue::push(QueueElement element) {
  const int64_t priority = element[0].data<int64_t>()[0];
  store_.emplace(std::pair(priority, ++newest_), std::move(element));
}

QueueElement PriorityQueue::pop() { return std::move(store_.extract(store_.begin()).mapped()); }

void PriorityQueue::give_back(QueueElement element) {
  const int64_t priority = element[0].data<int64_t>()[0];
  store_.emplace(std::pair(priority, --oldest_), std::move(element));
}

}  // namespace troupe
