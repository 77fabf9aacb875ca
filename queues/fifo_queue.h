// SPDX-License-Identifier: Apache-2.0
// First in, first out: FifoQueue, and PaddingFifoQueue, which pads elements of different sizes to one batch.
// Implemented in queues/fifo_queue.cpp.
#pragma once
#include "queues/queue.h"

namespace troupe {

/// Source: TensorFlow's FIFOQueue.
class FifoQueue : public Queue {
 public:
  /// Errors: kInvalidArgument for options that contradict one another.
  static Result<std::unique_ptr<Resource>> make(QueueOptions options);
  int64_t size() const override { return static_cast<int64_t>(store_.size()); }
  const char* kind() const override { return "FIFOQueue"; }

 protected:
  explicit FifoQueue(QueueOptions options) : Queue(std::move(options)) {}

 private:
  void push(QueueElement element) override { store_.push_back(std::move(element)); }
  QueueElement pop() override;
  void give_back(QueueElement element) override { store_.push_front(std::move(element)); }
  std::deque<QueueElement> store_;
};

/// A batch is as large in each dimension of unknown size as the largest of its elements; the rest is zeros (or empty
/// strings). Source: TensorFlow's PaddingFIFOQueue.
class PaddingFifoQueue final : public FifoQueue {
 public:
  /// Errors: as FifoQueue, and for a component of unknown rank.
  static Result<std::unique_ptr<Resource>> make(QueueOptions options);
  const char* kind() const override { return "PaddingFIFOQueue"; }

 private:
  explicit PaddingFifoQueue(QueueOptions options) : FifoQueue(std::move(options)) {}
  Status stackable() const override { return {}; }
  Result<Tensor> stack(size_t c, const std::vector<QueueElement>& rows,
                       const std::shared_ptr<Allocator>& allocator) const override;
};

}  // namespace troupe
