// SPDX-License-Identifier: Apache-2.0
// PriorityQueue: the element of smallest priority comes first. Implemented in queues/priority_queue.cpp.
#pragma once
#include <map>

#include "queues/queue.h"

namespace troupe {

/// Component 0 is the priority, an int64 scalar; elements of equal priority leave in the order they came. Requests
/// take O(log size). Source: TensorFlow's PriorityQueue.
class PriorityQueue final : public Queue {
 public:
  /// `options` describe the components after the priority, which may be none. Errors: kInvalidArgument for options that
  /// contradict one another.
  static Result<std::unique_ptr<Resource>> make(QueueOptions options);
  int64_t size() const override { return static_cast<int64_t>(store_.size()); }
  const char* kind() const override { return "PriorityQueue"; }

 private:
  explicit PriorityQueue(QueueOptions options) : Queue(std::move(options), true) {}
  void push(QueueElement element) override;
  QueueElement pop() override;
  void give_back(QueueElement element) override;

  std::map<std::pair<int64_t, int64_t>, QueueElement> store_;  // by priority, then order
  int64_t newest_ = 0;  // orders given to elements pushed grow, to those given back fall
  int64_t oldest_ = 0;
};

}  // namespace troupe
