// SPDX-License-Identifier: Apache-2.0
// SparseGradientAccumulator: sums gradients of single rows until enough have come, and drops stale ones. Implemented in
// containers/sparse_gradient_accumulator.cpp. Source: TensorFlow's SparseConditionalAccumulator.
#pragma once
#include <map>
#include <memory>

#include "containers/accumulator.h"

namespace troupe {

/// take_gradient() replies with the rows' indices, ascending, their values, and the shape of the whole, -1 in front
/// where the accumulator's is not known.
class SparseGradientAccumulator final : public Accumulator {
 public:
  /// `shape` is that of the whole. Errors: kInvalidArgument for a dtype that is not floating.
  static Result<std::unique_ptr<Resource>> make(std::string name, DType dtype, PartialShape shape, Reduction reduction);

  /// Adds row i of `values` to row indices[i] of the sum. `whole` is the shape of the whole, a vector, or empty. A
  /// gradient older than the global step is dropped without an error. `replica` as of GradientAccumulator.
  /// Errors: kInvalidArgument for what does not fit; kResourceExhausted.
  Status apply_gradient(int64_t local_step, const Tensor& indices, const Tensor& values, const Tensor& whole,
                        int64_t replica, std::shared_ptr<Allocator> allocator);

 private:
  using Accumulator::Accumulator;
  struct Gradient {
    Tensor indices, values;
  };
  struct Row {
    Tensor sum;
    int64_t gradients = 0;  // that have it
    int64_t last = 0;       // number of the last one
  };
  Status check(const Tensor& indices, const Tensor& values, const Tensor& whole) const;
  /// Adds rows to the sums, all or none.
  Status add(const Gradient& gradient);
  Result<std::vector<Tensor>> reduce() override;

  std::map<int64_t, Row> rows_;
  std::multimap<int64_t, Gradient> by_replica_;  // not in rows_ yet
  Shape row_shape_;
  bool any_ = false;                                           // row_shape_ is set
  int64_t gradients_ = 0;                                      // added so far
  std::shared_ptr<Allocator> allocator_ = system_allocator();  // of the last gradient
};

}  // namespace troupe
