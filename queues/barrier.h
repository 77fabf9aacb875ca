// SPDX-License-Identifier: Apache-2.0
// Barrier: gathers the components of elements by their keys; an element that has all of them can be taken. Implemented
// in queues/barrier.cpp. Source: TensorFlow's Barrier.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>

#include "queues/priority_queue.h"

namespace troupe {

/// A passive core (see Resource): its host calls it, one call at a time. What is complete waits in a queue: first the
/// elements whose keys came with earlier inserts, those of one insert as they became complete. A take that waits takes
/// elements as they become complete.
class Barrier final : public Resource {
 public:
  /// `options` describe the components without the key. Errors: kInvalidArgument for options that contradict one
  /// another, or a capacity: a barrier has no bound.
  static Result<std::unique_ptr<Resource>> make(QueueOptions options);

  const QueueOptions& options() const { return options_; }

  /// Gives the elements of `keys`, a vector, row i of `values` as component `component`. All or nothing. Errors:
  /// kInvalidArgument for what does not fit, and a component that its element has already; kCancelled for a key that is
  /// new once the barrier is closed, and for any once it was closed with `cancel_pending`.
  Status insert_many(int64_t component, const Tensor& keys, const Tensor& values);
  /// Takes `n` complete elements; waits for them. Reply: indices, which number the inserts that brought the keys, keys,
  /// and each component, stacked. When the barrier is closed and no more elements can become complete: what is left, if
  /// anything is and `allow_small_batch`, else kOutOfRange.
  void take_many(int64_t n, bool allow_small_batch, std::shared_ptr<Allocator> allocator, Reply reply);
  /// Lets in no new keys, and with `cancel_pending` nothing at all. Error: kCancelled when it was closed already,
  /// unless this is the first with `cancel_pending`.
  Status close(bool cancel_pending);
  int64_t ready_size() const { return ready_->size(); }
  int64_t incomplete_size() const { return static_cast<int64_t>(incomplete_.size()); }

  void cancel(uint64_t requester, int64_t step) override { ready_->cancel(requester, step); }

 private:
  struct Incomplete {
    int64_t index;                   // of the insert that brought its key
    std::vector<Tensor> components;  // undefined where missing
    size_t missing;
  };

  Barrier(QueueOptions options, std::unique_ptr<PriorityQueue> ready)
      : options_(std::move(options)), ready_(std::move(ready)) {}
  Status check(int64_t component, const Tensor& keys, const Tensor& values) const;
  void close_if_complete();

  const QueueOptions options_;
  std::unique_ptr<PriorityQueue> ready_;
  std::unordered_map<std::string, Incomplete> incomplete_;
  int64_t next_index_ = INT64_MIN;
  bool closed_ = false, cancelled_ = false;
};

}  // namespace troupe
