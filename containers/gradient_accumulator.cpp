// SPDX-License-Identifier: Apache-2.0
// Sums and means of gradients.
#include "containers/gradient_accumulator.h"

#include "containers/gradient_sums.h"

namespace troupe {

Result<std::unique_ptr<Resource>> GradientAccumulator::make(std::string name, DType dtype, PartialShape shape,
                                                            Reduction reduction) {
  TROUPE_RETURN_IF_ERROR(check(name, dtype));
  return std::unique_ptr<Resource>(new GradientAccumulator(std::move(name), dtype, std::move(shape), reduction));
}

Status GradientAccumulator::open_sum() {
  if (sum_.unique()) return {};
  TROUPE_ASSIGN(sum_, sum_.clone(allocator_));
  return {};
}

Status GradientAccumulator::apply_gradient(int64_t local_step, Tensor gradient, int64_t replica,
                                           std::shared_ptr<Allocator> allocator) {
  const Tensor& present = sum_.defined() || by_replica_.empty() ? sum_ : by_replica_.begin()->second;
  if (gradient.dtype() != dtype() || !shape().compatible(gradient.shape()) ||
      (present.defined() && !(present.shape() == gradient.shape())))
    return invalid_argument("accumulator '{}' is for {}{}, got a gradient {}{}", name(), to_string(dtype()),
                            present.defined() ? present.shape().str() : shape().str(), to_string(gradient.dtype()),
                            gradient.shape().str());
  if (local_step < global_step()) return {};
  allocator_ = std::move(allocator);
  if (replica >= 0) {
    by_replica_.emplace(replica, std::move(gradient));
  } else if (!sum_.defined()) {
    sum_ = std::move(gradient);
  } else {
    TROUPE_RETURN_IF_ERROR(open_sum());
    add_gradient(dtype(), sum_, gradient);
  }
  add_one();
  return {};
}

Result<std::vector<Tensor>> GradientAccumulator::reduce() {
  auto next = by_replica_.begin();
  if (!sum_.defined()) {
    sum_ = std::move(next->second);
    next = by_replica_.erase(next);
  }
  TROUPE_RETURN_IF_ERROR(open_sum());
  for (; next != by_replica_.end(); ++next) add_gradient(dtype(), sum_, next->second);
  if (reduction() != Reduction::kSum) divide_gradient(dtype(), sum_, count());
  by_replica_.clear();
  std::vector<Tensor> out;
  out.push_back(std::move(sum_));
  return out;
}

}  // namespace troupe
