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
  /// `options` describe the components after the priority, which may be none; `kind`, a literal, is what errors call
  /// the queue. Errors: kInvalidArgument for options that contradict one another.
  static Result<std::unique_ptr<Resource>> make_called(const char* kind, QueueOptions options);
  static Result<std::unique_ptr<Resource>> make(QueueOptions options) {
    return make_called("PriorityQueue", std::move(options));
  }
  int64_t size() const override { return static_cast<int64_t>(store_.size()); }
  const char* kind() const override { return kind_; }

 private:
  PriorityQueue(QueueOptions options, const char* kind) : Queue(std::move(options), true), kind_(kind) {}
  void push(QueueElement element) override;
  QueueElement pop() override;
  void give_back(QueueElement element) override;

  const char* const kind_;
  std::map<std::pair<int64_t, int64_t>, QueueElement> store_;  // by priority, then order
  int64_t newest_ = 0;  // orders given to elements pushed grow, to those given back fall
  int64_t oldest_ = 0;
};

}  // namespace troupe
