// SPDX-License-Identifier: Apache-2.0
// Reductions over some dimensions of a tensor: which elements meet, in which order, on which thread. What is done with
// them is a table of loops for one reducer and type.
#pragma once
#include <array>
#include <span>

#include "ops/parts/reduce_plan.h"
#include "ops/parts/type_dispatch.h"
#include "troupe/kernel.h"

namespace troupe {

/// Room for the accumulator of any reducer.
struct alignas(16) AccumulatorRoom {
  char bytes[16];
};

/// Loops of one reducer on one type.
struct ReduceLoops {
  size_t accumulator = 0;                                            // bytes of one
  void (*init)(void* acc, int64_t n) = nullptr;                      // n accumulators of nothing
  void (*run)(void* acc, const void* x, int64_t n) = nullptr;        // one accumulator takes n elements
  void (*rows)(void* acc, const void* x, int64_t n) = nullptr;       // n accumulators take an element each
  void (*merge)(void* acc, const void* other, int64_t n) = nullptr;  // n accumulators take one more each
  void (*finish)(void* out, const void* acc, int64_t n, int64_t count) = nullptr;  // results; count met in each
  void (*lines)(void* out, const void* x, int64_t lines, int64_t n) = nullptr;  // results of short lines of n; or none
};

/// Reduces x over the dimensions where `reduced` is true into `out`, whose elements are in the order of the others.
/// Sums in blocks, so that rounding grows slowly; the order depends on the shape alone, never on threads.
void reduce(const Tensor& x, std::span<const bool> reduced, const ReduceLoops& loops, void* out, int threads);
/// The result of n neighbouring elements of `size` bytes. In the order of reduce(), where rows are shorter than 65,536.
void reduce_row(const void* x, int64_t n, size_t size, const ReduceLoops& loops, void* out);

/// Sum, Mean and their kin, of the dimensions that the second input names, or of `all`.
class ReduceKernel final : public ComputeKernel {
 public:
  ReduceKernel(ReduceLoops loops, bool keep_dims, bool all) : loops_(loops), keep_dims_(keep_dims), all_(all) {}
  Status compute(KernelContext& c) override;
  const ReduceLoops& loops() const { return loops_; }

 private:
  const ReduceLoops loops_;
  const bool keep_dims_;
  const bool all_;
};

}  // namespace troupe
