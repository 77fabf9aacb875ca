// SPDX-License-Identifier: Apache-2.0
// Accumulator: what accumulators of gradients share: the count, the global step by which stale gradients are told, and
// who waits to take. Implemented in containers/accumulator.cpp. Source: TensorFlow's ConditionalAccumulatorBase.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "troupe/resource.h"

namespace troupe {

/// A passive core (see Resource): its host calls it, one call at a time.
class Accumulator : public Resource {
 public:
  enum class Reduction {
    kMean,       // of gradients of rows: for each row that of the gradients that have it
    kMeanOfAll,  // the others count as zero in a row
    kSum
  };

  /// Waits until `num_required` gradients have come; replies with the reduction of all there are. Starts from none
  /// again and moves the global step on by one. Error: kInvalidArgument for num_required < 1.
  void take_gradient(int64_t num_required, Reply reply);
  void set_global_step(int64_t step) { global_step_ = step; }
  int64_t global_step() const { return global_step_; }
  /// Gradients that came since the last was taken, dropped ones not counted.
  int64_t num_accumulated() const { return count_; }
  DType dtype() const { return dtype_; }

  void cancel(uint64_t requester, int64_t step) override;

 protected:
  /// `name` is for messages.
  Accumulator(std::string name, DType dtype, PartialShape shape, Reduction reduction)
      : name_(std::move(name)), dtype_(dtype), shape_(std::move(shape)), reduction_(reduction) {}
  /// Error: a dtype that is not floating.
  static Status check(const std::string& name, DType dtype);
  /// The sum or mean of the gradients that have come, count() of them; then there are none.
  virtual Result<std::vector<Tensor>> reduce() = 0;
  /// Counts a gradient, and answers who can be.
  void add_one();
  int64_t count() const { return count_; }
  Reduction reduction() const { return reduction_; }
  const std::string& name() const { return name_; }
  const PartialShape& shape() const { return shape_; }

 private:
  struct Take {
    int64_t required;
    Reply reply;
  };
  void serve();

  const std::string name_;
  const DType dtype_;
  const PartialShape shape_;
  const Reduction reduction_;
  int64_t global_step_ = 0;
  int64_t count_ = 0;
  std::deque<Take> takes_;
};

}  // namespace troupe
