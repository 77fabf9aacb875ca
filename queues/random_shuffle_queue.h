// SPDX-License-Identifier: Apache-2.0
// RandomShuffleQueue: dequeues draw at random. Implemented in queues/random_shuffle_queue.cpp.
#pragma once
#include <functional>

#include "queues/queue.h"

namespace troupe {

/// Each dequeue draws uniformly from the elements there; while the queue is open, at least min_after_dequeue stay in
/// it. The order depends on the words drawn and the order of requests alone: each word takes the element whose number
/// is its remainder, and the last one takes that place. Source: TensorFlow's RandomShuffleQueue.
class RandomShuffleQueue final : public Queue {
 public:
  /// Errors: kInvalidArgument for options that contradict one another; min_after_dequeue must be at least 0 and below
  /// the capacity.
  static Result<std::unique_ptr<Resource>> make(QueueOptions options, int64_t min_after_dequeue,
                                                std::function<uint32_t()> draw);
  int64_t size() const override { return static_cast<int64_t>(store_.size()); }
  const char* kind() const override { return "RandomShuffleQueue"; }

 private:
  RandomShuffleQueue(QueueOptions options, int64_t min_after_dequeue, std::function<uint32_t()> draw)
      : Queue(std::move(options), true), min_after_dequeue_(min_after_dequeue), draw_(std::move(draw)) {}
  void push(QueueElement element) override { store_.push_back(std::move(element)); }
  QueueElement pop() override;
  void give_back(QueueElement element) override { store_.push_back(std::move(element)); }
  int64_t available() const override { return size() - min_after_dequeue_; }

  const int64_t min_after_dequeue_;
  const std::function<uint32_t()> draw_;
  std::vector<QueueElement> store_;
};

}  // namespace troupe
