// SPDX-License-Identifier: Apache-2.0
// GradientAccumulator: sums gradients of many workers until enough have come, and drops stale ones. Implemented in
// containers/gradient_accumulator.cpp. Source: TensorFlow's ConditionalAccumulator.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <string>

#include "troupe/resource.h"

namespace troupe {

/// A passive core (see Resource): its host calls it, one call at a time.
class GradientAccumulator final : public Resource {
 public:
  enum class Reduction { kMean, kSum };

  /// `name` is for messages. Errors: kInvalidArgument for a dtype that is not floating.
  static Result<std::unique_ptr<Resource>> make(std::string name, DType dtype, PartialShape shape, Reduction reduction);

  /// Adds a gradient that was computed from the variables of `local_step`; one older than the global step is dropped
  /// without an error. With `replica` >= 0 it is kept apart until it is taken: gradients of replicas are then summed in
  /// the order of their indices (those of one replica in the order they came), so that the sum does not depend on who
  /// came first. Others are added as they come, before them. Clones come from `allocator`.
  /// Errors: kInvalidArgument for another dtype, or a shape that does not agree; kResourceExhausted.
  Status apply_gradient(int64_t local_step, Tensor gradient, int64_t replica, std::shared_ptr<Allocator> allocator);
  /// Waits until `num_required` gradients have come; replies with the reduction of all there are. Starts from none
  /// again and moves the global step on by one. Error: kInvalidArgument for num_required < 1.
  void take_gradient(int64_t num_required, Reply reply);
  void set_global_step(int64_t step) { global_step_ = step; }
  int64_t global_step() const { return global_step_; }
  /// Gradients that came since the last was taken, dropped ones not counted.
  int64_t num_accumulated() const { return count_; }
  DType dtype() const { return dtype_; }

  void cancel(uint64_t requester, int64_t step) override;

 private:
  struct Take {
    int64_t required;
    Reply reply;
  };
  GradientAccumulator(std::string name, DType dtype, PartialShape shape, Reduction reduction)
      : name_(std::move(name)), dtype_(dtype), shape_(std::move(shape)), reduction_(reduction) {}
  /// Makes sum_ writable.
  Status open_sum();
  Result<Tensor> reduce();
  void serve();

  const std::string name_;
  const DType dtype_;
  const PartialShape shape_;
  const Reduction reduction_;
  int64_t global_step_ = 0;
  int64_t count_ = 0;
  Tensor sum_;  // of gradients without a replica
  std::multimap<int64_t, Tensor> by_replica_;
  std::shared_ptr<Allocator> allocator_ = system_allocator();  // of the last gradient
  std::deque<Take> takes_;
};

}  // namespace troupe
