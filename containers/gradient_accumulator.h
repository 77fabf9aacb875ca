// SPDX-License-Identifier: Apache-2.0
// GradientAccumulator: sums gradients of many workers until enough have come, and drops stale ones. Implemented in
// containers/gradient_accumulator.cpp. Source: TensorFlow's ConditionalAccumulator.
#pragma once
#include <map>
#include <memory>

#include "containers/accumulator.h"

namespace troupe {

/// take_gradient() replies with one tensor.
class GradientAccumulator final : public Accumulator {
 public:
  /// Errors: kInvalidArgument for a dtype that is not floating.
  static Result<std::unique_ptr<Resource>> make(std::string name, DType dtype, PartialShape shape, Reduction reduction);

  /// Adds a gradient that was computed from the variables of `local_step`; one older than the global step is dropped
  /// without an error. With `replica` >= 0 it is kept apart until it is taken: gradients of replicas are then summed in
  /// the order of their indices (those of one replica in the order they came), so that the sum does not depend on who
  /// came first. Others are added as they come, before them. Clones come from `allocator`.
  /// Errors: kInvalidArgument for another dtype, or a shape that does not agree; kResourceExhausted.
  Status apply_gradient(int64_t local_step, Tensor gradient, int64_t replica, std::shared_ptr<Allocator> allocator);

 private:
  using Accumulator::Accumulator;
  Result<std::vector<Tensor>> reduce() override;
  /// Makes sum_ writable.
  Status open_sum();

  Tensor sum_;  // of gradients without a replica
  std::multimap<int64_t, Tensor> by_replica_;
  std::shared_ptr<Allocator> allocator_ = system_allocator();  // of the last gradient
};

}  // namespace troupe
